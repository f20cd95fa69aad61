"""`asyncconsumer demo`: what the project does, on real servers, in a minute."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from rich.console import Console
from rich.table import Table

from asyncconsumer.connector import ConsumerConnector
from asyncconsumer.simple import SimpleConsumer
from asyncconsumer.streams.messages import MessageStream
from asyncconsumer.testing.progress import fetching
from asyncconsumer.testing.servers import (
    DEFAULT_KAFKA,
    DEFAULT_ZOOKEEPER,
    LAST_WITH_ZOOKEEPER,
    Kafka,
    ZooKeeper,
)
from asyncconsumer.wire.messages import LATEST

_RECORDS = 10_000


async def show() -> None:
    """Start the servers, produce, and show what arrived."""
    console = Console(highlight=False)
    kafka = Kafka(DEFAULT_KAFKA)
    async with _told(console, f"{kafka.title} (KRaft)", kafka):
        await _produce_and_show(console, kafka)
    zookeeper = ZooKeeper(DEFAULT_ZOOKEEPER)
    async with _told(console, zookeeper.title, zookeeper):
        classic = Kafka(LAST_WITH_ZOOKEEPER, zookeeper=zookeeper.connect)
        async with _told(console, f"{classic.title} (ZooKeeper mode)", classic):
            await _produce_and_show(console, classic)
            await _share_a_group(console, zookeeper.connect)
    console.print("[green]done[/]: every server is stopped, nothing is left running")


@asynccontextmanager
async def _told(console: Console, name: str, server: Kafka | ZooKeeper) -> AsyncIterator[None]:
    """Run a server, and tell how long it took to be ready, its download not counted."""
    with fetching(console) as progress:
        await server.fetch(progress)
    started = time.monotonic()
    with console.status(f"starting {name} ..."):
        await server.start()
    where = server.connect if isinstance(server, ZooKeeper) else server.bootstrap_servers
    console.print(f"[bold]{name}[/] ready in {time.monotonic() - started:.1f} s at {where}")
    try:
        yield
    finally:
        await server.stop()


async def _produce_and_show(console: Console, kafka: Kafka) -> None:
    await kafka.admin.create_topic("orders", partitions=3)
    started = time.monotonic()
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=5) as producer:
        for number in range(_RECORDS):
            await producer.send(
                "orders", b'{"order": %d}' % number, key=b"customer-%d" % (number % 97)
            )
        await producer.flush()
    produced = time.monotonic()
    last = Table("partition", "offset", "key", "value", title="the last record of each partition")
    read = 0
    async with SimpleConsumer(kafka.bootstrap_servers) as consumer:
        for partition in range(3):
            records = [record async for record in consumer.read("orders", partition, end=LATEST)]
            read += len(records)
            newest = records[-1]
            last.add_row(str(partition), str(newest.offset), repr(newest.key), repr(newest.value))
    console.print(
        f"  produced {_RECORDS:,} records in {produced - started:.1f} s, "
        f"read {read:,} in {time.monotonic() - produced:.1f} s"
    )
    console.print(last)


async def _share_a_group(console: Console, zookeeper: str) -> None:
    """Two members of a classic group: they share a topic, one leaves, the other takes over."""
    first, second = (
        ConsumerConnector(
            zookeeper_connect=zookeeper,
            group_id="billing",
            consumer_id=name,
            auto_offset_reset="smallest",
        )
        for name in ("alice", "bob")
    )
    async with first, asyncio.TaskGroup() as tasks:
        one = _Reader(tasks, await first.create_message_streams({"orders": 1}))
        async with second:
            joined = time.monotonic()
            other = _Reader(tasks, await second.create_message_streams({"orders": 1}))
            console.print(
                f"  a second member joined its group in {time.monotonic() - joined:.2f} s"
            )
            while len(one.seen | other.seen) < _RECORDS:  # noqa: ASYNC110 - a demo may look
                await asyncio.sleep(0.02)
            shares = Table("member", "records", "partitions", title="one group, two members")
            for name, reader in (("alice", one), ("bob", other)):
                partitions = sorted({partition for partition, _ in reader.seen})
                shares.add_row(name, f"{len(reader.seen):,}", ", ".join(map(str, partitions)))
            console.print(shares)
        await first.shutdown()


class _Reader:
    """Reads all streams of a member, and keeps where each record was."""

    def __init__(
        self, tasks: asyncio.TaskGroup, streams: dict[str, list[MessageStream[bytes, bytes]]]
    ) -> None:
        self.seen: set[tuple[int, int]] = set()
        for of_topic in streams.values():
            for stream in of_topic:
                tasks.create_task(self._read(stream))

    async def _read(self, stream: MessageStream[bytes, bytes]) -> None:
        async for record in stream:
            self.seen.add((record.partition, record.offset))
