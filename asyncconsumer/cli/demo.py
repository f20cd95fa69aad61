"""`asyncconsumer demo`: what the project does, on real servers, in a minute."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from rich.console import Console
from rich.table import Table

from asyncconsumer.simple import SimpleConsumer
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
