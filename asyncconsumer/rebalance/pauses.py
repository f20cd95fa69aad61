"""The pauses of assigned partitions. Records of a paused partition are not delivered."""

from collections.abc import Collection

from asyncconsumer.types import TopicPartition


class Pauses:
    """The pauses of partitions, of topics, and of all partitions that are not selected.

    A pause outlasts a revocation: it applies again if the partition is assigned again.
    """

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.topics: frozenset[str] = frozenset()
        self.selected: frozenset[TopicPartition] | None = None  # only these are delivered

    def __contains__(self, tp: TopicPartition) -> bool:
        unselected = self.selected is not None and tp not in self.selected
        return unselected or tp.topic in self.topics or tp in self.partitions

    def select(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Pause all partitions except these, or none of them if `partitions` is None.

        Return whether this changes which partitions are paused.
        """
        before, self.selected = self.selected, None if partitions is None else frozenset(partitions)
        return before != self.selected

    def pause_topics(self, topics: Collection[str]) -> None:
        """Pause all partitions of these topics, and end the pause of other topics."""
        self.topics = frozenset(topics)
