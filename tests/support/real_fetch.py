"""A fetch engine on real brokers, written records, and delivered records."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from asyncconsumer.config import ConnectionConfig, EngineConfig, FetchConfig
from asyncconsumer.events import Event
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.protocol.messages import EARLIEST
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition
from tests.support.helpers import until

_PAUSE: Final = 0.02  # between two records of a partition


class Engine:
    """A fetch manager for tests, which records its events."""

    def __init__(self, manager: FetchManager, session: KafkaClient) -> None:
        self.manager = manager
        self.session = session
        self.events: list[Event] = []
        self.targets: dict[TopicPartition, FetchTarget] = {}

    def read(
        self, partitions: Iterable[TopicPartition], offset: int = EARLIEST, **options: Any
    ) -> Stream:
        """Return a new stream of these partitions. Other streams continue."""
        channel = self.manager.channel()
        self.targets |= {tp: FetchTarget(channel, offset, **options) for tp in partitions}
        self.manager.reconcile(self.targets)
        return Stream(channel)

    def observed(self, kind: type[Event]) -> list[Event]:
        """Return the events of a type."""
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def open_engine(
    servers: str,
    fetch: Mapping[str, Any] | None = None,
    connection: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Engine]:
    """Open an engine. `options` are those of EngineConfig."""
    config = ConnectionConfig(bootstrap_servers=servers, **(connection or {}))
    async with KafkaClient(config, patience_ms=0) as session:
        manager = FetchManager(
            session.brokers,
            session.cluster,
            FetchConfig(**(fetch or {})),
            EngineConfig(**options),
            randomness=Random(),
        )
        engine = Engine(manager, session)

        async def listen() -> None:
            async for event in manager.events.listen():
                engine.events.append(event)

        async with manager, asyncio.TaskGroup() as group:
            listening = group.create_task(listen())
            try:
                yield engine
            finally:
                listening.cancel()


async def values(stream: Stream, count: int) -> list[bytes | None]:
    """Return the next values."""
    results: list[bytes | None] = []
    async with asyncio.timeout(60):
        async for record in stream:
            results.append(record.value)
            if len(results) == count:
                break
    return results


class Writer:
    """A writer of endless records. After a record that is not acknowledged, it sends another one.

    A record may be in the log twice or unacknowledged. Each acknowledged offset must be read with
    its value.
    """

    def __init__(self, servers: str, partitions: Iterable[TopicPartition]) -> None:
        # with aiokafka's default timeouts, a frozen broker delays its partitions by 40 s
        self._producer = AIOKafkaProducer(
            bootstrap_servers=servers, acks="all", request_timeout_ms=3000, linger_ms=0
        )
        self._group = asyncio.TaskGroup()
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in partitions}

    async def __aenter__(self) -> Self:
        await self._producer.start()
        await self._group.__aenter__()
        self._tasks = [self._group.create_task(self._write(tp)) for tp in self.acknowledged]
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
            await self._group.__aexit__(None, None, None)
        finally:
            await self._producer.stop()

    async def stop(self) -> None:
        """Stop writing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _write(self, tp: TopicPartition) -> None:
        number = 0
        while True:
            number += 1
            value = b"%d of %d" % (number, tp.partition)
            try:
                reported = await self._producer.send_and_wait(
                    tp.topic, value, partition=tp.partition
                )
            except KafkaError:
                await asyncio.sleep(0.1)
            else:
                self.acknowledged[tp][reported.offset] = value
                await asyncio.sleep(_PAUSE)


class Ledger:
    """The delivered records, whose offsets must be contiguous."""

    def __init__(self) -> None:
        self.delivered: dict[TopicPartition, list[bytes | None]] = defaultdict(list)

    async def read(self, stream: Stream) -> None:
        """Read until cancelled."""
        async for record in stream:
            before = self.delivered[TopicPartition(record.topic, record.partition)]
            assert record.offset == len(before), f"{record.offset} follows {len(before) - 1}"
            before.append(record.value)

    def has(self, acknowledged: Mapping[TopicPartition, dict[int, bytes]]) -> bool:
        """Return whether every partition was read up to the last acknowledged record."""
        return all(
            len(self.delivered[tp]) > next(reversed(offsets), -1)
            for tp, offsets in acknowledged.items()
        )

    def check(self, acknowledged: Mapping[TopicPartition, dict[int, bytes]]) -> None:
        """Check that every acknowledged record was delivered once."""
        for tp, records in acknowledged.items():
            lost = {
                offset: value
                for offset, value in records.items()
                if self.delivered[tp][offset] != value
            }
            assert not lost, f"{tp}: {len(lost)} of {len(records)} are lost"


class Load:
    """A topic that is written and read during an ``async with`` block.

    At the end of the block, all acknowledged records must have been delivered.
    """

    def __init__(self, engine: Engine, servers: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self.engine = engine
        self.writer = Writer(servers, self.partitions)
        self.ledger = Ledger()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._reading = self._group.create_task(self.ledger.read(self.engine.read(self.partitions)))
        await self.writer.__aenter__()
        await self.wait_progress()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.writer.__aexit__()
            if kind is None:
                written = self.writer.acknowledged
                await until(lambda: self.ledger.has(written))
                self.ledger.check(written)
        finally:
            self._reading.cancel()
            await self._group.__aexit__(None, None, None)

    async def wait_progress(
        self, records: int = 10, *, without: Iterable[TopicPartition] = ()
    ) -> None:
        """Wait until `records` more records of each partition were acknowledged and delivered."""
        others = set(self.partitions) - set(without)
        written = self.writer.acknowledged
        enough = {tp: len(written[tp]) + records for tp in others}

        def reached() -> bool:
            known = {tp: written[tp] for tp in others if len(written[tp]) >= enough[tp]}
            return len(known) == len(others) and self.ledger.has(known)

        await until(reached)
