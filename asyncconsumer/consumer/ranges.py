"""A reader of offset ranges of partitions, without a group.

async with RangeReader(bootstrap_servers) as reader:
    async for batch in reader.read(OffsetRange("orders", 0, 100, 200)).arrow(): ...
    async with reader.read_all(ranges) as stream:
        async for batch in stream.arrow(): ...
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Unpack

from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.config import EngineConfig, ReaderOptions, document_options, split
from asyncconsumer.consumer.groupless import GrouplessReader
from asyncconsumer.errors import ConfigError, OffsetUnavailable
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.direct.partition_reader import PartitionReader, ReadPolicy
from asyncconsumer.fetch.direct.partition_stream import PartitionStream
from asyncconsumer.fetch.list_offsets import list_offset
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.fetch.refetch import RefetchPolicy
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import OffsetRange, TopicPartition


@document_options(ReaderOptions)
class RangeReader(GrouplessReader):
    """A reader of offset ranges. It can read any number of ranges concurrently.

    A range ends exactly at its end, also if compaction or transactions left no record at that
    offset. A range that is not in the log raises OffsetUnavailable.
    """

    _own_options = ("retry_timeout_ms", "max_buffered_bytes")

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        retry_timeout_ms: int = 60_000,
        max_buffered_bytes: int = 32 * 2**20,
        **options: Unpack[ReaderOptions],
    ) -> None:
        self._engine_config = EngineConfig(
            auto_offset_reset="none",
            retry_timeout_ms=retry_timeout_ms,
            max_buffered_bytes=max_buffered_bytes,
        )
        connection, self._fetch_config = split(
            {**options, "bootstrap_servers": bootstrap_servers}, self._own_options
        )
        self._session = KafkaClient(
            connection, patience_ms=retry_timeout_ms, max_body_bytes=max_buffered_bytes
        )

    async def _check_end(self, tp: TopicPartition, end: int) -> None:
        """Raise OffsetUnavailable if `end` is after the end of the log. A read would never end."""
        leaders, committed = self._session.leaders, self._fetch_config.committed_only
        latest = (await list_offset(leaders, tp, LATEST, committed_only=committed)).offset
        if end > latest:
            earliest = (await list_offset(leaders, tp, EARLIEST)).offset
            raise OffsetUnavailable(*tp, end, earliest, latest)

    @asynccontextmanager
    async def read_all(self, offset_ranges: Iterable[OffsetRange]) -> AsyncIterator[Stream]:
        """Return an async context manager that opens one stream of many ranges.

        Each range must be of another partition. All ranges are fetched concurrently, in few
        requests, within ``max_buffered_bytes``. The records of each range are in order. The stream
        ends after all ranges.
        """
        ranges: dict[TopicPartition, OffsetRange] = {}
        for range_ in offset_ranges:
            _check(range_)
            tp = TopicPartition(range_.topic, range_.partition)
            if ranges.setdefault(tp, range_) is not range_:
                raise ConfigError(
                    f"read_all() got two ranges of {tp}. Read {range_} in a separate call"
                )
        await for_each(
            ((tp, range_.end) for tp, range_ in ranges.items() if range_.start < range_.end),
            lambda end: self._check_end(*end),
        )
        session = self._session
        manager = FetchManager(
            session.brokers,
            session.cluster,
            self._fetch_config,
            self._engine_config,
            randomness=session.randomness,
        )
        async with manager:
            channel = manager.channel()
            stream = Stream(channel)
            targets = {
                tp: FetchTarget(channel, range_.start, end=range_.end)
                for tp, range_ in ranges.items()
            }

            def read_again(offsets: Mapping[TopicPartition, int]) -> None:
                for tp, offset in offsets.items():
                    stream.forget(tp)
                    targets[tp] = targets[tp]._replace(offset=offset, epoch=targets[tp].epoch + 1)
                manager.reconcile(targets)

            aiter(stream).recover = RefetchPolicy(stream.position, read_again).recover
            manager.reconcile(targets)
            if not ranges:
                channel.close()
            yield stream

    def read(self, offset_range: OffsetRange) -> PartitionStream:
        """Return a stream of one range, for ``async for``, `chunks()` or `arrow()`."""
        _check(offset_range)
        tp = TopicPartition(offset_range.topic, offset_range.partition)

        async def open_reader(slot: int) -> PartitionReader:
            if offset_range.start < offset_range.end:
                await self._check_end(tp, offset_range.end)
            return PartitionReader(
                tp,
                offset_range.start,
                self._session.leaders,
                self._fetch_config,
                policy=ReadPolicy(end_existed=True, bodies=self._session.bodies),
                end=offset_range.end,
                slot=slot,
            )

        return self._session.stream(open_reader)


def _check(offset_range: OffsetRange) -> None:
    if (
        not 0 <= offset_range.start <= offset_range.end < 2**63
        or offset_range.partition < 0
        or not offset_range.topic
    ):
        raise ConfigError(
            f"{offset_range} is not valid. It needs a topic, a partition, and 0 <= start <= end"
        )
