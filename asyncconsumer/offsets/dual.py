"""A group's offsets in two places at once, for moving from one to the other."""

from collections.abc import Iterable, Mapping

from asyncconsumer.errors import ConsumerError
from asyncconsumer.offsets.store import OffsetStore, commit_error, failed_partitions
from asyncconsumer.types import TopicPartition


class DualOffsets:
    """What is committed goes to the first store, and from there to the second.

    Members that know one store only and members with both may be in a group together, so that a
    group is moved member by member: first all to both, then all to the new one. Kafka's classic
    consumer does the same with Kafka as the first and ZooKeeper as the second.
    """

    def __init__(self, first: OffsetStore, second: OffsetStore) -> None:
        self._first = first
        self._second = second

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The larger of both for each partition: the other store has missed a commit.

        To go back is therefore only safe by a commit that reached both.
        """
        wanted = list(partitions)
        first, second = await self._first.load(wanted), await self._second.load(wanted)
        return {one: _larger(first.get(one), second.get(one)) for one in wanted}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit to the first, and each partition that succeeded there also to the second."""
        failed = await _failed(self._first, offsets)
        kept = {one: offset for one, offset in offsets.items() if one not in failed}
        failed |= await _failed(self._second, kept)
        if failed:
            raise commit_error(offsets, failed)


async def _failed(
    store: OffsetStore, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ConsumerError]:
    """Commit; the errors of those that were not."""
    if not offsets:
        return {}
    try:
        await store.commit(offsets)
    except ConsumerError as error:
        return failed_partitions(offsets, error)
    return {}


def _larger(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
