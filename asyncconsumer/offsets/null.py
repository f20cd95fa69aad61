"""The offset store of a consumer without a group."""

from collections.abc import Iterable, Mapping

from asyncconsumer.types import TopicPartition


class NullOffsetStore:
    """A store that keeps no offsets."""

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return None for each partition."""
        return dict.fromkeys(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Discard the offsets."""
