"""The offsets of a group while nothing is subscribed: read and committed as no member."""

from collections.abc import Collection, Mapping
from typing import Any

from asyncconsumer.errors import ConfigError
from asyncconsumer.offsets.store import OffsetStore, check_offsets
from asyncconsumer.records.decoding import Record
from asyncconsumer.streams.messages import Message
from asyncconsumer.types import TopicPartition


class UnsubscribedOffsets:
    """Passes offsets on to a store. Kafka refuses commits while the group has members."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition; None where there is none."""
        return await self._store.load(partitions)

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | Record | Message[Any, Any] | None
    ) -> dict[TopicPartition, int]:
        """Commit these offsets, or a record and all before it. Without any nothing is finished."""
        if offsets is None:
            return {}
        if isinstance(offsets, Record | Message):
            offsets = {TopicPartition(offsets.topic, offsets.partition): offsets.offset + 1}
        if not isinstance(offsets, Mapping):
            raise ConfigError(f"commit({offsets!r}): give a record, or offsets by partition")
        given = dict(offsets)
        check_offsets(given)
        await self._store.commit(given)
        return given
