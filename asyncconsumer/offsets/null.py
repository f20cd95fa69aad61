"""The offset store of a consumer without a group."""

from collections.abc import Iterable, Mapping

from asyncconsumer.types import TopicPartition


class NullOffsetStore:
    """An offset store that stores nothing."""

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return None for each partition, because no offset is stored."""
        return dict.fromkeys(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Discard the offsets."""
