"""Offsets of a consumer that is in no group: nobody keeps them."""

from collections.abc import Iterable, Mapping

from asyncconsumer.types import TopicPartition


class NullOffsetStore:
    """Knows of no offset, and forgets what it is told."""

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """None, for each."""
        return dict.fromkeys(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Nothing is kept."""
