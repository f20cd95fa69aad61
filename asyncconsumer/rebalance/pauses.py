"""The partitions that are assigned and whose records are not delivered."""

from collections.abc import Collection

from asyncconsumer.types import TopicPartition


class Pauses:
    """The partitions that are paused by name, by topic, or because others are selected.

    They remain paused while they are not assigned.
    """

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.topics: frozenset[str] = frozenset()
        self.selected: frozenset[TopicPartition] | None = None  # only these are delivered

    def __contains__(self, tp: TopicPartition) -> bool:
        unselected = self.selected is not None and tp not in self.selected
        return unselected or tp.topic in self.topics or tp in self.partitions

    def select(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Select partitions, or all if None. Return whether this is a change."""
        before, self.selected = self.selected, None if partitions is None else frozenset(partitions)
        return before != self.selected

    def pause_topics(self, topics: Collection[str]) -> None:
        """Pause all partitions of these topics, and of no others."""
        self.topics = frozenset(topics)
