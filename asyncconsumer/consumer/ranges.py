"""A reader of offset ranges of partitions, without a group.

async with RangeReader(bootstrap_servers) as reader:
    async for batch in reader.read(OffsetRange("orders", 0, 100, 200)).arrow(): ...
    async with reader.read_all(ranges) as stream:
        async for batch in stream.arrow(): ...
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

from asyncconsumer.aio.concurrency import each
from asyncconsumer.config import EngineConfig, check_names, split
from asyncconsumer.errors import ConfigError, OffsetUnavailable
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.direct.partition_reader import PartitionReader, ReadPolicy
from asyncconsumer.fetch.direct.partition_stream import PartitionStream
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.fetch.offset_lookup import list_offset
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import OffsetRange, TopicPartition

_OWN_OPTIONS: Final = ("retry_timeout_ms", "max_buffered_bytes")


class RangeReader:
    """A reader of offset ranges, any number of them concurrently.

    The options are those of `ConnectionConfig` and `FetchConfig`. A range ends exactly at its
    end, also if compaction or transactions left no record there. A range that is not in the log
    raises OffsetUnavailable.
    """

    def __new__(cls, *servers: Any, **options: Any) -> Self:  # noqa: ANN401 - checks names
        """Check the option names before a missing `bootstrap_servers` raises TypeError."""
        named = {"bootstrap_servers": servers[0]} if servers else {}
        check_names({**options, **named}, _OWN_OPTIONS)
        return super().__new__(cls)

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        retry_timeout_ms: int = 60_000,
        max_buffered_bytes: int = 32 * 2**20,
        **options: Any,  # noqa: ANN401 - checked by the configs that take them
    ) -> None:
        options["bootstrap_servers"] = bootstrap_servers
        self._engine_config = EngineConfig(
            auto_offset_reset="none",
            retry_timeout_ms=retry_timeout_ms,
            max_buffered_bytes=max_buffered_bytes,
        )
        connection, self._fetch_config = split(options, _OWN_OPTIONS)
        self._session = KafkaClient(
            connection, patience_ms=retry_timeout_ms, max_body_bytes=max_buffered_bytes
        )

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)

    async def _check_end(self, at: TopicPartition, end: int) -> None:
        """Raise if the range ends after the end of the log, because it would never end."""
        leaders, committed = self._session.leaders, self._fetch_config.committed_only
        latest = (await list_offset(leaders, at, LATEST, committed_only=committed)).offset
        if end > latest:
            earliest = (await list_offset(leaders, at, EARLIEST)).offset
            raise OffsetUnavailable(*at, end, earliest, latest)

    @asynccontextmanager
    async def read_all(self, wanted: Iterable[OffsetRange]) -> AsyncIterator[Stream]:
        """Open one stream of many ranges, each of another partition. It ends after all ranges.

        All ranges are fetched concurrently, in few requests, within ``max_buffered_bytes``. The
        records of each range are in order.
        """
        ranges: dict[TopicPartition, OffsetRange] = {}
        for one in wanted:
            _check(one)
            if ranges.setdefault(TopicPartition(one.topic, one.partition), one) is not one:
                raise ConfigError(f"{one}: there is another range of that partition; read it apart")
        await each(
            ((at, one.end) for at, one in ranges.items() if one.start < one.end),
            lambda place: self._check_end(*place),
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
            manager.reconcile(
                {at: FetchTarget(channel, one.start, end=one.end) for at, one in ranges.items()}
            )
            if not ranges:
                channel.close()
            yield Stream(channel)

    def read(self, wanted: OffsetRange) -> PartitionStream:
        """Return a stream of one range, for ``async for``, `chunks()` or `arrow()`."""
        _check(wanted)
        at = TopicPartition(wanted.topic, wanted.partition)

        async def open_reader(lane: int) -> PartitionReader:
            if wanted.start < wanted.end:
                await self._check_end(at, wanted.end)
            return PartitionReader(
                at,
                wanted.start,
                self._session.leaders,
                self._fetch_config,
                policy=ReadPolicy(end_was_there=True, bodies=self._session.bodies),
                end=wanted.end,
                lane=lane,
            )

        return self._session.stream(open_reader)


def _check(wanted: OffsetRange) -> None:
    if not 0 <= wanted.start <= wanted.end < 2**63 or wanted.partition < 0 or not wanted.topic:
        raise ConfigError(f"{wanted}: need a topic, a partition, and 0 <= start <= end")
