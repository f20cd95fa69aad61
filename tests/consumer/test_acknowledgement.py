"""The acknowledgement rule of each way to read, against a model, on virtual time."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.errors import ConcurrentRead
from asyncconsumer.records import decoding
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import run, simulated
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast

TP = TopicPartition("t", 0)
Body = Callable[[int], Awaitable[bool]]
"""Works on the record at an offset; True leaves the loop by ``break``."""


class Failed(Exception):
    """An error of a loop body."""


@asynccontextmanager
async def world(records: int, batch: int = 1) -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        for _ in range(records // batch):
            cluster.append("t", 0, batch)
        yield cluster


def committed(cluster: GroupCluster) -> int:
    result = cluster.storage.offsets.get("g", {}).get(TP)
    return 0 if result is None else int(result["offset"])


# --- the syntaxes --------------------------------------------------------------------------------


async def statement(consumer: Any, body: Body) -> None:
    async for record in consumer:
        if await body(record.offset):
            break


async def returned(consumer: Any, body: Body) -> None:
    async for record in consumer:
        if await body(record.offset):
            return


async def batches(consumer: Any, body: Body) -> None:
    async for batch in consumer.batches(3, 10):
        leave = [
            await body(record.offset) for record in batch
        ]  # the batch is acknowledged as a whole
        if any(leave):
            return


async def chunks(consumer: Any, body: Body) -> None:
    async for chunk in consumer.chunks():
        for record in chunk:
            if await body(record.offset):
                return


async def arrow(consumer: Any, body: Body) -> None:
    async for table in consumer.arrow(max_rows=1):
        for offset in table.column("offset").to_pylist():
            if await body(offset):
                return


async def comprehension(consumer: Any, body: Body) -> None:
    class Leave(Exception):
        pass

    async def each(offset: int) -> int:
        if await body(offset):
            raise Leave
        return offset

    with suppress(Leave):
        [await each(record.offset) async for record in consumer]


async def generator_expression(consumer: Any, body: Body) -> None:
    async for offset in (record.offset async for record in consumer):
        if await body(offset):
            break


async def _records(consumer: Any) -> AsyncGenerator[int, None]:
    async for record in consumer:
        yield record.offset


async def wrapped(consumer: Any, body: Body) -> None:
    async for offset in _records(consumer):
        if await body(offset):
            break


async def wrapped_and_closed(consumer: Any, body: Body) -> None:
    async with aclosing(_records(consumer)) as offsets:
        async for offset in offsets:
            if await body(offset):
                break


async def by_hand(consumer: Any, body: Body) -> None:
    iterator = aiter(consumer)
    while True:
        record = await anext(iterator)
        if await body(record.offset):
            break


async def by_hand_with_a_limit(consumer: Any, body: Body) -> None:
    iterator = aiter(consumer)
    while True:
        record = await asyncio.wait_for(anext(iterator), 1_000)  # noqa: TID251 - as users do
        if await body(record.offset):
            break


async def kept(consumer: Any, body: Body) -> None:
    iterator = aiter(consumer)
    first = await anext(iterator)
    if await body(first.offset):
        return
    async for record in iterator:
        if await body(record.offset):
            break


async def getmany(consumer: Any, body: Body) -> None:
    while True:
        result = await consumer.getmany(timeout_ms=1_000_000, max_records=3)
        leave = [await body(record.offset) for records in result.values() for record in records]
        if any(leave):
            return


async def getone(consumer: Any, body: Body) -> None:
    while True:
        record = await consumer.getone()
        if await body(record.offset):
            return


SEEN = [statement, returned, batches, arrow]  # the library sees how these loops end
UNSEEN = [
    comprehension,
    generator_expression,
    wrapped,
    wrapped_and_closed,
    by_hand,
    by_hand_with_a_limit,
    kept,
]
ALL = [*SEEN, chunks, *UNSEEN]
CALLS = [getmany, getone]  # all calls are one iteration
WHOLE = [batches, chunks, getmany]  # acknowledged all at once
MESSAGES = [{}, {"value_deserializer": bytes}]
TRACED = {"tracing": True}
every = pytest.mark.parametrize("read", ALL, ids=lambda read: read.__name__)
every_and_calls = pytest.mark.parametrize("read", [*ALL, *CALLS], ids=lambda read: read.__name__)
raw_or_made = pytest.mark.parametrize("options", MESSAGES, ids=["raw", "messages"])


def until(last: int, seen: list[int], fail: bool = False) -> Body:
    """Return a body that leaves at an offset, by ``break`` or by an error."""

    async def body(offset: int) -> bool:
        await asyncio.sleep(0.01)
        seen.append(offset)
        if offset == last and fail:
            raise Failed(offset)
        return offset == last

    return body


# --- the rule, line by line ----------------------------------------------------------------------


@every_and_calls
@raw_or_made
@simulated([1])
async def test_requesting_the_next_record_acknowledges(read: Any, options: dict[str, Any]) -> None:
    async with world(6) as cluster, make_consumer(cluster, **options) as consumer:

        async def body(offset: int) -> bool:
            await asyncio.sleep(1)  # for the auto-commit
            assert committed(cluster) <= offset
            if read not in WHOLE and offset:
                assert committed(cluster) == offset
            return offset == 4

        await read(consumer, body)


@pytest.mark.parametrize(
    "read",
    [read for read in (*ALL, *CALLS) if read is not comprehension],
    ids=lambda read: read.__name__,
)
@raw_or_made
@simulated([1])
async def test_leaving_the_block_without_error_acknowledges(
    read: Any, options: dict[str, Any]
) -> None:
    async with world(6) as cluster:
        seen: list[int] = []
        async with make_consumer(cluster, **options, auto_commit_interval_ms=10**8) as consumer:
            await read(consumer, until(2, seen))
        assert seen == [0, 1, 2]
        assert committed(cluster) == 3


@pytest.mark.parametrize("read", SEEN, ids=lambda read: read.__name__)
@pytest.mark.parametrize("options", [*MESSAGES, TRACED], ids=["raw", "messages", "traced"])
@simulated([1])
async def test_a_break_acknowledges(read: Any, options: dict[str, Any]) -> None:
    async with world(6) as cluster, make_consumer(cluster, **options) as consumer:
        seen: list[int] = []
        await read(consumer, until(2, seen))
        await asyncio.sleep(1)
        assert committed(cluster) == 3
        await read(consumer, until(5, seen))
        assert seen == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("read", UNSEEN, ids=lambda read: read.__name__)
@pytest.mark.parametrize("options", [{}, TRACED], ids=["raw", "traced"])
@simulated([1])
async def test_a_loop_whose_break_is_not_seen_redelivers_its_record(
    read: Any, options: dict[str, Any]
) -> None:
    async with world(6) as cluster, make_consumer(cluster, **options) as consumer:
        seen: list[int] = []
        await read(consumer, until(2, seen))
        await asyncio.sleep(1)
        if read is not kept:
            assert committed(cluster) == 2
        await read(consumer, until(5, seen))
        again = [] if read is kept else [2]  # its last loop is a statement
        assert seen == [0, 1, 2, *again, 3, 4, 5]


@every
@raw_or_made
@simulated([1, 2])
async def test_an_error_acknowledges_nothing(read: Any, options: dict[str, Any]) -> None:
    async with world(6) as cluster, make_consumer(cluster, **options) as consumer:
        seen: list[int] = []
        for fails in (True, True, False):
            try:
                await read(consumer, until(2 if fails else 5, seen, fails))
            except Failed:
                await asyncio.sleep(1)
                assert committed(cluster) <= 2
        assert seen.count(2) == 3
        assert set(seen) == set(range(6))


@every_and_calls
@simulated([1])
async def test_an_error_that_leaves_the_block_acknowledges_nothing(read: Any) -> None:
    async with world(6) as cluster:
        seen: list[int] = []
        with pytest.raises(Failed):
            async with make_consumer(cluster) as consumer:
                await read(consumer, until(2, seen, fail=True))
        assert committed(cluster) == (0 if read in WHOLE else 2)


@pytest.mark.parametrize("read", [*SEEN, comprehension], ids=lambda read: read.__name__)
@simulated([1])
async def test_a_failed_loop_is_not_acknowledged_by_the_end_of_the_block(read: Any) -> None:
    async with world(6) as cluster:
        seen: list[int] = []
        async with make_consumer(cluster) as consumer:
            with pytest.raises(Failed):
                await read(consumer, until(2, seen, fail=True))
        assert committed(cluster) == (0 if read in WHOLE else 2)


@every_and_calls
@simulated([1])
async def test_a_cancelled_task_acknowledges_nothing(read: Any) -> None:
    async with world(6) as cluster:
        seen: list[int] = []
        stuck = asyncio.Event()

        async def body(offset: int) -> bool:
            seen.append(offset)
            if offset == 2 and seen.count(2) == 1:
                stuck.set()
                await asyncio.Event().wait()
            return offset == 4

        async with make_consumer(cluster) as consumer:
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(read(consumer, body))
                await stuck.wait()
                task.cancel()
            await asyncio.sleep(1)
            assert committed(cluster) <= 2
        assert committed(cluster) <= 2
        async with make_consumer(cluster) as consumer:
            await read(consumer, body)
        assert seen.count(2) == 2


@every_and_calls
@raw_or_made
@pytest.mark.parametrize(
    "policy", [{}, {"enable_auto_commit": False}, {"commit_policy": "manual"}], ids=str
)
@simulated([1])
async def test_a_commit_by_the_reader_includes_its_records_in_flight(
    read: Any, options: dict[str, Any], policy: dict[str, Any]
) -> None:
    async with world(6) as cluster, make_consumer(cluster, **options, **policy) as consumer:

        async def body(offset: int) -> bool:
            await asyncio.sleep(0.01)
            await consumer.commit()
            assert committed(cluster) > offset
            return offset == 4

        await read(consumer, body)


@every_and_calls
@simulated([1])
async def test_a_commit_by_another_task_excludes_records_in_flight(read: Any) -> None:
    async with world(6) as cluster, make_consumer(cluster, enable_auto_commit=False) as consumer:

        async def body(offset: int) -> bool:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(consumer.commit())
            assert committed(cluster) <= offset
            return offset == 4

        await read(consumer, body)


# --- two tasks -----------------------------------------------------------------------------------


@every_and_calls
@simulated([1])
async def test_a_second_task_is_refused_while_the_first_has_a_record(read: Any) -> None:
    async with world(6) as cluster, make_consumer(cluster) as consumer:
        holds, goes_on = asyncio.Event(), asyncio.Event()

        async def body(offset: int) -> bool:
            holds.set()
            await goes_on.wait()
            return offset == 4

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read(consumer, body), name="first")
            await holds.wait()
            with pytest.raises(ConcurrentRead, match=r"streams\(n\).*ConsumerApp"):
                await read(consumer, body)
            goes_on.set()


@pytest.mark.parametrize("kind", ["iterator", "generator"])
@simulated([1])
async def test_tasks_that_share_an_iterator_are_refused(kind: str) -> None:
    async with world(6) as cluster, make_consumer(cluster) as consumer:
        iterator: Any = aiter(consumer) if kind == "iterator" else _records(consumer)
        got: list[Any] = []
        refused: list[str] = []
        first = asyncio.Event()

        async def worker() -> None:
            try:
                got.append(await anext(iterator))
            except ConcurrentRead as error:
                refused.append(str(error))
                return
            first.set()
            await asyncio.sleep(10)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker())
            await first.wait()
            tasks.create_task(worker())
        assert len(got) == 1
        assert len(refused) == 1
        await asyncio.sleep(1)
        assert committed(cluster) == 0


@simulated([1])
async def test_a_task_cannot_continue_to_read_while_another_has_a_record() -> None:
    async with world(6) as cluster, make_consumer(cluster) as consumer:
        second_holds, over = asyncio.Event(), asyncio.Event()

        async def second() -> None:
            async for record in consumer:
                assert record.offset == 1
                second_holds.set()
                await over.wait()
                break

        async def first(tasks: asyncio.TaskGroup) -> None:
            async for record in consumer:
                assert record.offset == 0
                await consumer.commit()  # nothing is unfinished: another task may read
                tasks.create_task(second())
                await second_holds.wait()

        async with asyncio.TaskGroup() as tasks:
            with pytest.raises(ConcurrentRead):
                await first(tasks)
            over.set()
        await asyncio.sleep(1)
        assert committed(cluster) == 2


@simulated([1])
async def test_a_task_may_read_after_another_task_is_done() -> None:
    async with world(6) as cluster, make_consumer(cluster) as consumer:
        seen: list[int] = []
        for last in (1, 3, 5):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(statement(consumer, until(last, seen)))
        assert seen == [0, 1, 2, 3, 4, 5]


@simulated([1])
async def test_a_running_task_keeps_its_record_when_the_block_ends() -> None:
    async with world(6) as cluster, asyncio.TaskGroup() as tasks:
        holds = asyncio.Event()

        async def body(_: int) -> bool:
            holds.set()
            await asyncio.sleep(100)
            return True

        async with make_consumer(cluster) as consumer:
            task = tasks.create_task(statement(consumer, body))
            await holds.wait()
        assert committed(cluster) == 0
        task.cancel()


# --- one iterator --------------------------------------------------------------------------------


@simulated([1])
async def test_an_iterator_continues_after_its_loop() -> None:
    async with world(6) as cluster, make_consumer(cluster) as consumer:
        iterator = aiter(consumer)
        assert (await anext(iterator)).offset == 0
        async for record in iterator:
            assert record.offset == 1
            assert (await anext(iterator)).offset == 2
            break
        assert (await anext(iterator)).offset == 3


@simulated([1])
async def test_an_iterator_redelivers_the_record_on_which_a_loop_failed() -> None:
    async with world(6) as cluster, make_consumer(cluster) as consumer:
        iterator, seen = aiter(consumer), list[int]()
        for fails in (True, True, False):
            with suppress(Failed):
                await statement(iterator, until(2 if fails else 5, seen, fails))
        assert seen == [0, 1, 2, 2, 2, 3, 4, 5]
        assert committed(cluster) <= 6


@simulated([1])
async def test_the_rest_of_a_chunk_is_read_by_the_next_loop() -> None:
    async with world(12, batch=6) as cluster, make_consumer(cluster) as consumer:
        seen: list[int] = []
        for read, last in (
            (statement, 1), (chunks, 3), (arrow, 5), (statement, 7), (batches, 10), (chunks, 11),
        ):  # fmt: skip
            await read(consumer, until(last, seen))
        assert seen == list(range(12))


# --- a random walk -------------------------------------------------------------------------------


class Walk:
    """A reader that reads in random ways and knows which offsets must not be committed yet."""

    def __init__(self, cluster: GroupCluster, random: Random, records: int) -> None:
        self._cluster = cluster
        self._random = random
        self._records = records
        self.done: set[int] = set()
        self.failed = False  # the last loop ended with an error
        self._in_tasks = random.random() < 0.5  # each loop in a task of its own

    @property
    def over(self) -> bool:
        return len(self.done) == self._records

    @property
    def first_undone(self) -> int:
        return next(n for n in range(self._records + 1) if n not in self.done)

    def check(self) -> None:
        assert committed(self._cluster) <= self.first_undone, (
            "the commit includes an unprocessed record"
        )

    async def body(
        self, consumer: Consumer[Any, Any], offset: int, remaining: list[int], how: str
    ) -> bool:
        assert offset <= self.first_undone, f"record {self.first_undone} was skipped"
        await asyncio.sleep(self._random.choice([0, 0, 0.01, 0.2]))
        self.check()
        remaining[0] -= 1
        if remaining[0] == 0 and how == "error":
            raise Failed(offset)
        if remaining[0] == 0 and how == "cancel":
            await asyncio.sleep(5)
            raise Failed(offset)  # wait_for of Python 3.11 may swallow a cancellation
        self.done.add(offset)
        return remaining[0] == 0

    async def step(self, consumer: Consumer[Any, Any]) -> None:
        how = self._random.choice(["break", "error", "cancel"])
        read, remaining = self._random.choice(ALL), [self._random.randint(1, 4)]
        reading = read(consumer, lambda offset: self.body(consumer, offset, remaining, how))
        self.failed = how != "break"
        seconds = self._random.choice([0, 0.001, 0.01, 0.3, 1]) if how == "cancel" else 1
        try:
            if self._in_tasks:
                await self._in_a_task(reading, seconds)
            else:
                async with asyncio.timeout(seconds):
                    await reading
        except (Failed, TimeoutError):
            self.failed = True

    async def _in_a_task(self, reading: Coroutine[Any, Any, None], seconds: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(_quietly(reading))
            await asyncio.wait([task], timeout=seconds)
            task.cancel()
        self.failed = self.failed or task.cancelled() or task.result()


async def _quietly(reading: Coroutine[Any, Any, None]) -> bool:
    try:
        await reading
    except Failed:
        return True
    return False


async def _walk(seed: int) -> None:
    random = Random(seed)
    async with world(24, batch=random.choice([1, 3])) as cluster:
        walk = Walk(cluster, random, 24)
        options = random.choice(MESSAGES)
        while not walk.over:
            try:
                async with make_consumer(cluster, **options) as consumer:
                    for _ in range(random.randint(1, 6)):
                        if not walk.over:
                            await walk.step(consumer)
                        walk.check()
                    if walk.failed:
                        raise Failed  # noqa: TRY301 - to leave the block by it
            except Failed:
                pass
            walk.check()


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_random_walk_loses_no_record(first: int) -> None:
    for seed in range(first, first + 20):
        try:
            run(partial(_walk, seed), seed=seed, limit=10**6)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.skipif(decoding.name == "pure", reason="this is that run")
def test_the_pure_decoder_has_the_same_rule() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    ran = subprocess.run(
        [*command, "-p", "no:xdist", "-k", "not messages-"],  # half of the tests are enough
        env={**os.environ, "ASYNCCONSUMER_DECODER": "pure"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert " passed" in ran.stdout
