"""The methods of `AIOKafkaConsumer` that look up topics, offsets and the state of partitions."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka import OffsetAndTimestamp, TopicPartition
from aiokafka.errors import KafkaTimeoutError

from asyncconsumer import types
from asyncconsumer.compat.aiokafka_arguments import converted
from asyncconsumer.compat.aiokafka_consumer import RecordConsumer
from asyncconsumer.compat.aiokafka_errors import translated

_NOT_ASSIGNED: Final = "Partition is not assigned"


class Lookups:
    """A base class of `AIOKafkaConsumer` with the methods that change nothing."""

    _consumer: RecordConsumer

    @abstractmethod
    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return each partition's first record at or after a time, as offset and timestamp."""
        moments = {types.TopicPartition(*tp): int(moment) for tp, moment in timestamps.items()}
        for tp, moment in moments.items():
            if moment < 0:
                raise ValueError(f"The target time for partition {tp} is {moment}")
        offsets = await self._queried(self._consumer.offsets_for_times(moments))
        return {
            TopicPartition(*tp): None if offset is None else OffsetAndTimestamp(*offset)
            for tp, offset in offsets.items()
        }

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        offsets = await self._queried(self._consumer.beginning_offsets(converted(partitions)))
        return {TopicPartition(*tp): offset for tp, offset in offsets.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will have."""
        offsets = await self._queried(self._consumer.end_offsets(converted(partitions)))
        return {TopicPartition(*tp): offset for tp, offset in offsets.items()}

    async def _queried(self, query: Any) -> Any:  # noqa: ANN401 - the result of the query
        seconds = self._consumer.config.connection.request_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                with translated():
                    return await query
        except TimeoutError:
            raise KafkaTimeoutError("The offsets could not be looked up in time") from None

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark in the last fetch response, or None before the first one."""
        assert partition in self.assignment(), _NOT_ASSIGNED
        return self._consumer.highwater(*converted([partition]))

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset: None before a fetch, and -1 for "read_uncommitted"."""
        if self.highwater(partition) is None:
            return None
        offset = self._consumer.last_stable_offset(*converted([partition]))
        committed_only = self._consumer.config.fetch.committed_only
        return offset if committed_only and offset is not None else -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the partition's last fetch in ms since 1970, or None before it."""
        assert partition in self.assignment(), _NOT_ASSIGNED
        progress = self._consumer.progress().get(*converted([partition]))
        if progress is None or progress.last_fetch is None:
            return None
        return int((datetime.now(UTC).timestamp() - progress.last_fetch) * 1000)

    async def topics(self) -> set[str]:
        """Return the names of all topics that this client is allowed to describe."""
        with translated():
            return set(await self._consumer.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the known partition numbers of a topic, or None if the topic is not known."""
        return self._consumer.known_partitions(topic)
