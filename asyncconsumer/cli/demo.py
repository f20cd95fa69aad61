"""The command `asyncconsumer demo`, which shows the project on real servers in a minute."""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

from rich.console import Console
from rich.table import Table

from asyncconsumer.aio.start_task import start_task
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.cli.demo_lake import show_lake
from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.simple import SimpleConsumer
from asyncconsumer.producer.producer import Producer
from asyncconsumer.protocol.messages import LATEST
from asyncconsumer.streams.messages import Message
from asyncconsumer.testing.progress import fetching
from asyncconsumer.testing.servers import (
    DEFAULT_KAFKA,
    DEFAULT_ZOOKEEPER,
    LAST_WITH_ZOOKEEPER,
    Kafka,
    ZooKeeper,
)

_RECORDS = 10_000


async def show() -> None:
    """Start the servers, produce and consume records, and print the results."""
    console = Console(highlight=False)
    zookeeper = ZooKeeper(DEFAULT_ZOOKEEPER)
    async with _running(console, zookeeper.title, zookeeper):
        classic = Kafka(LAST_WITH_ZOOKEEPER, zookeeper=zookeeper.connect)
        async with _running(console, f"{classic.title} (ZooKeeper mode)", classic):
            await _produce_and_show(console, classic)
            await _consume_with_zookeeper_group(console, zookeeper.connect)
    kafka = Kafka(DEFAULT_KAFKA)
    async with _running(console, f"{kafka.title} (KRaft)", kafka):
        await _produce_and_show(console, kafka)
        await _consume_with_kafka_group(console, kafka)
        await show_lake(console, kafka, "orders", _RECORDS)
    console.print("[green]done[/]: all servers are stopped")


@asynccontextmanager
async def _running(console: Console, name: str, server: Kafka | ZooKeeper) -> AsyncIterator[None]:
    """Return an async context manager that runs a server and prints the duration of its start.

    The duration does not include the download.
    """
    with fetching(console) as progress:
        await server.fetch(progress)
    started = time.monotonic()
    with console.status(f"starting {name} ..."):
        await server.start()
    address = server.connect if isinstance(server, ZooKeeper) else server.bootstrap_servers
    console.print(f"[bold]{name}[/] ready in {time.monotonic() - started:.1f} s at {address}")
    try:
        yield
    finally:
        await server.stop()


async def _produce_and_show(console: Console, kafka: Kafka) -> None:
    await kafka.admin.create_topic("orders", partitions=3)
    started = time.monotonic()
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        randomness = Random(7)  # noqa: S311 - not for security
        for number in range(_RECORDS):
            customer = min(int(randomness.expovariate(0.3)), 20)  # uneven, as in real data
            await producer.send("orders", b'{"order": %d}' % number, key=b"customer-%d" % customer)
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


async def _consume_with_kafka_group(console: Console, kafka: Kafka) -> None:
    """Run two members of a group that Kafka coordinates."""
    first, second = (
        Consumer(
            "orders",
            bootstrap_servers=kafka.bootstrap_servers,
            group_id="billing",
            client_id=name,
            auto_offset_reset="earliest",
            partition_assignment_strategy="cooperative-sticky",
            heartbeat_interval_ms=500,
        )
        for name in ("alice", "bob")
    )
    async with first:
        await first.wait_assigned()
        joined = time.monotonic()
        async with second:
            await wait_until(lambda: bool(second.assignment), every=0.02)
            _print_join(console, "Kafka", joined)
            await _read_all(console, "Kafka", {"alice": [first], "bob": [second]})


async def _consume_with_zookeeper_group(console: Console, zookeeper: str) -> None:
    """Run two members of a ZooKeeper group."""
    first, second = (
        ConsumerConnector(
            zookeeper_connect=zookeeper,
            group_id="billing",
            consumer_id=name,
            auto_offset_reset="smallest",
        )
        for name in ("alice", "bob")
    )
    async with first, second:
        streams = await first.create_message_streams({"orders": 1})
        joined = time.monotonic()
        others = await second.create_message_streams({"orders": 1})
        _print_join(console, "ZooKeeper", joined)
        by_member = {"alice": streams["orders"], "bob": others["orders"]}
        await _read_all(console, "ZooKeeper", by_member)


def _print_join(console: Console, coordinator: str, since: float) -> None:
    seconds = time.monotonic() - since
    console.print(f"  {coordinator} group: a second member was assigned in {seconds:.2f} s")


async def _read_all(
    console: Console,
    coordinator: str,
    members: Mapping[str, Sequence[AsyncIterable[Message[bytes, bytes]]]],
) -> None:
    """Read all records, and print how many records and which partitions each member read."""
    seen: dict[str, set[tuple[int, int]]] = {name: set() for name in members}

    async def read(name: str, stream: AsyncIterable[Message[bytes, bytes]]) -> None:
        async for record in stream:
            seen[name].add((record.partition, record.offset))

    async with asyncio.TaskGroup() as group:
        tasks = [
            start_task(group, read(name, stream))
            for name, streams in members.items()
            for stream in streams
        ]
        await wait_until(lambda: sum(map(len, seen.values())) >= _RECORDS, every=0.02)
        for task in tasks:
            task.cancel()
    table = Table(
        "member", "records", "partitions", title=f"one {coordinator} group with two members"
    )
    for name, records in seen.items():
        numbers = sorted({partition for partition, _ in records})
        table.add_row(name, f"{len(records):,}", ", ".join(map(str, numbers)))
    console.print(table)
