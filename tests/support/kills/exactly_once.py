"""Exactly-once programs that tests kill. They store offsets with their results.

`sqlite`: a loop that stores offsets and results in one transaction of a database. `handlers`: an
app whose handler stores both. `transaction`: a loop that writes both to Kafka in one transaction.
"""

import asyncio
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from asyncconsumer import Consumer, ConsumerApp, Record, TopicPartition
from asyncconsumer.streams.messages import Message

Program = Callable[[str, Path, dict[str, Any]], Coroutine[Any, Any, None]]


class DatabaseOffsets:
    """An offset store in the database of the results."""

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, isolation_level="IMMEDIATE", timeout=30)
        self.database.execute(
            "PRAGMA synchronous=OFF"
        )  # only the process is killed, not the machine

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        retained = dict(self.database.execute("SELECT partition, next FROM offsets"))
        return {tp: retained.get(tp.partition) for tp in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self.database:  # commits the inserted results, too
            rows = [(tp.partition, int(offset)) for tp, offset in offsets.items()]
            self.database.executemany("REPLACE INTO offsets VALUES (?, ?)", rows)


class HandlerOffsets(DatabaseOffsets):
    """A store whose handlers have committed their records with the results."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def store(self, life: str, record: Record) -> None:
        """Store the result of a record and its offset in one transaction."""
        with self.database:
            row = life, record.partition, record.offset
            self.database.execute("INSERT INTO handled VALUES (?, ?, ?)", row)
            offset = record.partition, record.offset + 1
            self.database.execute("REPLACE INTO offsets VALUES (?, ?)", offset)


async def run_until_sigterm(work: Awaitable[None]) -> None:
    """Run `work` until SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await work


async def into_database(life: str, path: Path, options: dict[str, Any]) -> None:
    topic, chance, longest = options.pop("topic"), Random(), options.pop("longest")
    del options["concurrency"]
    store = DatabaseOffsets(path)

    async def work() -> None:
        async with Consumer(topic, offsets=store, commit_policy="manual", **options) as consumer:
            async for batch in consumer.batches(max_records=20, max_wait_ms=10):
                for record in batch:
                    row = life, record.partition, record.offset
                    store.database.execute("INSERT INTO handled VALUES (?, ?, ?)", row)
                await asyncio.sleep(chance.random() * longest)
                if await consumer.commit(_next_offsets(batch)) != _next_offsets(batch):
                    store.database.rollback()  # the partition is lost

    await run_until_sigterm(work())


async def with_handlers(life: str, path: Path, options: dict[str, Any]) -> None:
    topic, chance, longest = options.pop("topic"), Random(), options.pop("longest")
    store = HandlerOffsets(path)
    concurrency = options.pop("concurrency")
    app = ConsumerApp(offsets=store, **options)

    @app.handler(topic, ordering="partition", concurrency=concurrency)
    async def handle(record: Record) -> None:
        await asyncio.sleep(
            chance.random() * longest / 10
        )  # the calls of a partition run one by one
        store.store(life, record)

    await app.run()


async def in_transactions(life: str, path: Path, options: dict[str, Any]) -> None:
    topic, chance, longest = options.pop("topic"), Random(), options.pop("longest")
    del options["concurrency"]
    sink, servers = options.pop("sink"), options["bootstrap_servers"]

    async def work() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=sink)
        async with Consumer(topic, commit_policy="manual", **options) as consumer, producer:
            async for batch in consumer.batches(max_records=20, max_wait_ms=10):
                async with consumer.transaction(producer):
                    for record in batch:
                        value = f"{life} {record.partition} {record.offset}"
                        await producer.send(sink, value.encode())
                    await asyncio.sleep(chance.random() * longest)

    await run_until_sigterm(work())


def _next_offsets(batch: Iterable[Message[Any, Any]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(message.topic, message.partition): message.offset + 1 for message in batch
    }


PROGRAMS: Final[Mapping[str, Program]] = {
    "sqlite": into_database,
    "handlers": with_handlers,
    "transaction": in_transactions,
}
