"""The offsets of a group, read and committed without membership."""

from collections.abc import Collection, Mapping
from typing import Any

from asyncconsumer.consumer.subscription_spec import offsets_by_partition
from asyncconsumer.offsets.store import OffsetStore, check_offsets
from asyncconsumer.records.decoding import Record
from asyncconsumer.streams.messages import Message
from asyncconsumer.types import TopicPartition


class UnsubscribedOffsets:
    """The offsets of a group, for a consumer that has no subscription at the moment.

    Kafka rejects these commits while the group has members.
    """

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None for a partition without one."""
        return await self._store.load(partitions)

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | Record | Message[Any, Any] | None
    ) -> dict[TopicPartition, int]:
        """Commit these offsets, or the offset after a record. For None, commit nothing.

        Return the committed offsets.
        """
        if offsets is None:
            return {}
        if isinstance(offsets, Record | Message):
            offsets = {TopicPartition(offsets.topic, offsets.partition): offsets.offset + 1}
        by_partition = offsets_by_partition(offsets)
        check_offsets(by_partition)
        await self._store.commit(by_partition)
        return by_partition
