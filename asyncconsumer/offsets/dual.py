"""An offset store that writes to two other stores, for migrations between them."""

from collections.abc import Iterable, Mapping

from asyncconsumer.errors import ConsumerError
from asyncconsumer.offsets.store import OffsetStore, commit_error, failed_partitions
from asyncconsumer.types import TopicPartition


class DualOffsets:
    """An offset store that commits each offset to a first store, then to a second one.

    Members with one of the stores and members with both may be in one group. A group is migrated
    member by member: first all members to both stores, then all to the new one. Kafka's classic
    consumer does the same, with Kafka as the first and ZooKeeper as the second store.
    """

    def __init__(self, first: OffsetStore, second: OffsetStore) -> None:
        self._first = first
        self._second = second

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the larger offset of both stores for each partition, or None if both have none.

        The store with the smaller offset has missed a commit. A rewind is therefore safe only if
        its commit reached both stores.
        """
        tps = list(partitions)
        first, second = await self._first.load(tps), await self._second.load(tps)
        return {tp: _larger(first.get(tp), second.get(tp)) for tp in tps}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit to the first store, then commit the partitions that succeeded to the second.

        Raise an error if a partition failed in either store.
        """
        failed = await _failed(self._first, offsets)
        succeeded = {tp: offset for tp, offset in offsets.items() if tp not in failed}
        failed |= await _failed(self._second, succeeded)
        if failed:
            raise commit_error(offsets, failed)


async def _failed(
    store: OffsetStore, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ConsumerError]:
    """Commit offsets to a store. Return the errors of the partitions that failed."""
    if not offsets:
        return {}
    try:
        await store.commit(offsets)
    except ConsumerError as error:
        return failed_partitions(offsets, error)
    return {}


def _larger(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)
