"""Cancellation at each point of a reader: no record is lost or committed too early."""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, Record
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import make_consumer
from tests.support.helpers import until

RECORDS = 9
PARTITIONS = 3


@types.coroutine
def cancelled_at(step: int, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, int]:
    """Run `work`, cancel its task at await number `step`, and return the number of awaits."""
    steps = 0
    try:
        word: Any = None
        trouble: BaseException | None = None
        while True:
            waits = work.send(word) if trouble is None else work.throw(trouble)
            trouble = None
            steps += 1
            if steps == step:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # before the awaited result can arrive
            try:
                word = yield waits
            except BaseException as error:  # noqa: BLE001 - raised inside of the coroutine
                trouble = error
    except StopIteration:
        return steps


class Work:
    """Slow processing of records. No commit may be after its last processed record."""

    def __init__(self) -> None:
        self.finished: set[tuple[int, int]] = set()
        self.committed: dict[int, int] = {}
        self.beyond: list[str] = []

    async def on(self, record: Any) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0.03)
        await asyncio.sleep(0)
        self.finished.add((record.partition, record.offset))

    def commit(self, group: str, member: str, position: tuple[str, int], offset: int) -> None:
        self.committed[position[1]] = offset
        self.beyond += [
            f"{position} committed {offset}, {number} is not finished"
            for number in range(offset)
            if (position[1], number) not in self.finished
        ]

    @property
    def over(self) -> bool:
        return len(self.finished) == RECORDS


async def by_record(consumer: Consumer[Any, Any], work: Work) -> None:
    async for record in consumer:
        await work.on(record)


async def by_message(consumer: Consumer[Any, Any], work: Work) -> None:
    iterator = aiter(consumer)
    while True:
        message = await anext(iterator)
        await work.on(message)


async def by_timeout(consumer: Consumer[Any, Any], work: Work) -> None:
    """Read with a short timeout for each record, and repeat the wait."""
    iterator = aiter(consumer)
    while True:
        try:
            async with asyncio.timeout(0.01):
                record = await anext(iterator)
        except TimeoutError:
            continue
        await work.on(record)


async def by_batch(consumer: Consumer[Any, Any], work: Work) -> None:
    async for batch in consumer.batches(max_records=5, max_wait_ms=40):
        for record in batch:
            await work.on(record)


async def by_chunk(consumer: Consumer[Any, Any], work: Work) -> None:
    async for records in consumer.chunks():
        for record in records:
            await work.on(record)


async def by_arrow(consumer: Consumer[Any, Any], work: Work) -> None:
    async for batch in consumer.arrow(max_rows=2, columns=["partition", "offset"]):
        for row in batch.to_pylist():
            await work.on(Record("t", row["partition"], row["offset"]))


async def slow(data: bytes) -> bytes:
    await asyncio.sleep(0.02)
    return data


class SlowAtFirst:
    """A deserializer that is slower than `by_timeout` waits when it gets a value first."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    async def deserialize(self, data: bytes, place: object) -> bytes:
        if data not in self.seen:
            self.seen.add(data)
            await asyncio.sleep(0.02)
        return data


WAYS: dict[
    str, tuple[Callable[[Consumer[Any, Any], Work], Coroutine[Any, Any, None]], dict[str, Any]]
] = {
    "records": (by_record, {}),
    "messages": (by_message, {"value_deserializer": lambda data: data}),
    "slow messages": (by_message, {"value_deserializer": slow}),
    "timeouts": (by_timeout, {}),
    "slow timeouts": (by_timeout, {"value_deserializer": SlowAtFirst()}),
    "batches": (by_batch, {}),
    "slow batches": (by_batch, {"value_deserializer": slow}),
    "chunks": (by_chunk, {}),
    "arrow": (by_arrow, {}),
}


async def run(step: int, way: str) -> bool:
    """Read with a task that is cancelled at `step`, then with another.

    Return whether the first task was cancelled before all records were read.
    """
    read, options = WAYS[way]
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", PARTITIONS)
        for partition in range(PARTITIONS):
            cluster.append("t", partition, RECORDS // PARTITIONS)
        work = Work()
        cluster.storage.on_commit = work.commit
        consumer = make_consumer(cluster, auto_commit_interval_ms=10, **options)
        async with consumer, asyncio.TaskGroup() as tasks:

            async def watched() -> None:
                await cancelled_at(step, read(consumer, work))

            readers = [tasks.create_task(watched())]
            await until(lambda: readers[0].done() or work.over, 300)
            cancelled = readers[0].done()
            if not work.over:
                readers.append(tasks.create_task(read(consumer, work)))
                await until(lambda: work.over, 300)
            # the last records are not acknowledged, because no next record is requested
            await until(lambda: sum(work.committed.values()) >= RECORDS - 5, 300)
            for reader in readers:
                reader.cancel()
        assert work.beyond == []
    return cancelled


@pytest.mark.fast
@pytest.mark.parametrize("way", WAYS)
def test_a_cancellation_at_any_await_of_a_reader_loses_no_record(way: str) -> None:
    step, cancelled = 0, True
    while cancelled:  # until the reader has read everything before its step
        step += 1

        @simulated([step])
        async def played(step: int = step) -> None:
            nonlocal cancelled
            cancelled = await run(step, way)

        played()
    assert step > RECORDS  # at least one await for each record


@pytest.mark.fast
@simulated([7])
async def test_a_thousand_cancellations_lose_no_record() -> None:
    dice = Random(5)
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", PARTITIONS)
        work, sent = Work(), 0
        cluster.storage.on_commit = work.commit
        consumer = make_consumer(cluster)
        async with consumer:
            for number in range(1_000):
                cluster.append("t", number % PARTITIONS, 2)
                sent += 2
                read = dice.choice([by_record, by_timeout, by_batch, by_chunk])
                async with asyncio.TaskGroup() as tasks:
                    reader = tasks.create_task(read(consumer, work))
                    await asyncio.sleep(dice.uniform(0, 0.3))
                    reader.cancel()
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(by_record(consumer, work))
                await until(lambda: len(work.finished) == sent, 200)
                reader.cancel()
        assert work.beyond == []
