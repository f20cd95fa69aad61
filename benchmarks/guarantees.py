"""The guarantees of clients for a record in work, a cancelled wait and a blocked event loop.

    python -m benchmarks.guarantees

Each client reads a topic of a real broker, as the only member of a group, with automatic commits.

- record in work: is the offset after a record committed while the program still works on it?
- cancelled waits: how many of 200 records are lost if each wait for a record is cancelled after a
  millisecond, and repeated?
- blocked loop: can the member commit after it has blocked the loop for longer than its session?
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import CommitFailedError
from confluent_kafka import KafkaException
from confluent_kafka.aio import AIOConsumer

from asyncconsumer import Admin, Consumer
from asyncconsumer.testing.servers import Kafka

RECORDS: Final = 200
SESSION_MS: Final = 6_000
NOTHING_TO_COMMIT: Final = -168
"""The error code of librdkafka if the automatic commit was first."""
Read = Callable[[], Awaitable[Any]]
Client = tuple[Read, Callable[[], Awaitable[Any]]]


@asynccontextmanager
async def asyncconsumer(servers: str, topic: str, group: str) -> AsyncIterator[Client]:
    async with Consumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        session_timeout_ms=SESSION_MS,
    ) as consumer:
        records = aiter(consumer)
        yield lambda: anext(records), consumer.commit


@asynccontextmanager
async def aiokafka(servers: str, topic: str, group: str) -> AsyncIterator[Client]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
    )
    await consumer.start()
    try:
        yield consumer.getone, consumer.commit
    finally:
        await consumer.stop()


@asynccontextmanager
async def confluent(servers: str, topic: str, group: str) -> AsyncIterator[Client]:
    consumer = AIOConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "session.timeout.ms": SESSION_MS,
        }
    )
    await consumer.subscribe([topic])

    async def read() -> object:
        while True:
            message = await consumer.poll(1.0)
            if message is not None and message.error() is None:
                return message

    async def commit() -> None:
        try:
            await consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != NOTHING_TO_COMMIT:
                raise

    try:
        yield read, commit
    finally:
        await consumer.close()


CLIENTS: Final = {
    "asyncconsumer": asyncconsumer,
    "aiokafka getone": aiokafka,
    "confluent-kafka AIO poll": confluent,
}


async def record_in_work(client: Client, admin: Admin, group: str) -> str:
    read, _ = client
    await read()
    await asyncio.sleep(2)  # the program works on the record, and the loop is free
    committed = (await admin.committed(group)).values()
    return "committed" if any(int(offset) > 0 for offset in committed) else "not committed"


async def cancelled_waits(client: Client, admin: Admin, group: str) -> str:
    read, _ = client
    received, last = 0, time.monotonic()
    while received < RECORDS and time.monotonic() - last < 5:
        try:
            async with asyncio.timeout(0.001):
                await read()
        except TimeoutError:
            continue
        received, last = received + 1, time.monotonic()
    return f"{RECORDS - received} of {RECORDS} records lost"


async def blocked_loop(client: Client, admin: Admin, group: str) -> str:
    read, commit = client
    await read()
    await asyncio.sleep(1)
    time.sleep(1.5 * SESSION_MS / 1000)  # noqa: ASYNC251 - this is what is measured
    try:
        await commit()
    except CommitFailedError as error:
        return f"the commit fails: {type(error).__name__}"
    return "commits"


QUESTIONS: Final = (record_in_work, cancelled_waits, blocked_loop)


async def main() -> None:
    print(f"Python {sys.version.split()[0]}")
    async with Kafka() as kafka:
        servers = kafka.bootstrap_servers
        await kafka.admin.create_topic("orders")
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(RECORDS):
                await producer.send("orders", b"%d" % number)
        async with Admin(servers) as admin:
            for question in QUESTIONS:
                for name, client in CLIENTS.items():
                    group = f"{question.__name__}-{name.replace(' ', '-')}"
                    async with client(servers, "orders", group) as opened:
                        answer = await question(opened, admin, group)
                    print(f"{question.__name__.replace('_', ' '):>16}  {name:<26} {answer}")


if __name__ == "__main__":
    asyncio.run(main())
