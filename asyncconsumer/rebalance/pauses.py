"""The pauses of assigned partitions. Records of a paused partition are not delivered."""

from collections.abc import Collection

from asyncconsumer.types import TopicPartition


class Pauses:
    """The partitions whose records are not delivered.

    They are the paused partitions, all partitions of the paused topics, and all that `select`
    excludes. A pause continues after a revocation: it applies again when the partition is assigned
    again.
    """

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.topics: frozenset[str] = frozenset()
        self.selected: frozenset[TopicPartition] | None = None  # only these are delivered

    def __contains__(self, tp: TopicPartition) -> bool:
        unselected = self.selected is not None and tp not in self.selected
        return unselected or tp.topic in self.topics or tp in self.partitions

    def select(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Pause all partitions except `partitions`. With None, end the pauses of an earlier call.

        Return whether the selection has changed.
        """
        before, self.selected = self.selected, None if partitions is None else frozenset(partitions)
        return before != self.selected

    def pause_topics(self, topics: Collection[str]) -> None:
        """Pause all partitions of `topics`, and end the pause of topics of an earlier call."""
        self.topics = frozenset(topics)
