"""Items whose results are sent and not acknowledged yet: on virtual time, without a broker."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from asyncconsumer import Batch, Record, Retry
from asyncconsumer.errors import ConsumerError, HandlerFailed, RecordTooLarge
from asyncconsumer.handlers.draining import drain
from asyncconsumer.handlers.handler import Handler, HandlerOptions
from asyncconsumer.handlers.runtime import HandlerRuntime
from asyncconsumer.producer.batch import ProducerBatch, RecordDelivery
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.fake_handlers import CONTEXT, A, B, record, settle, submit

if TYPE_CHECKING:
    from asyncconsumer.handlers.queue import WorkQueue

pytestmark = pytest.mark.fast


class Sender:
    """A producer whose records are acknowledged by a test. Each record has its own batch."""

    def __init__(self) -> None:
        self.batches: dict[bytes | None, ProducerBatch] = {}  # unfinished batches by value
        self.values: list[bytes | None] = []

    def send_now(self, topic: str, key: bytes | None, value: bytes | None) -> RecordDelivery:
        batch = self.batches[value] = ProducerBatch(TopicPartition(topic, 0), 0, 0.0)
        self.values.append(value)
        return RecordDelivery(batch, 0, 0)

    async def send_bytes(self, topic: str, *record: Any) -> RecordDelivery:
        return self.send_now(topic, *record[:2])

    async def acknowledge(self, *values: bytes) -> None:
        for value in values:
            self.batches.pop(value).written(0, 0)
        await settle()

    async def acknowledge_all(self) -> None:
        while self.batches:
            await self.acknowledge(*[value or b"" for value in self.batches])

    async def refuse(self, *values: bytes) -> None:
        for value in values:
            self.batches.pop(value).failed(RecordTooLarge("billed[0]"))
        await settle()


class PublishingBench:
    """A handler that publishes the offsets of its records."""

    def __init__(self, **handling: Any) -> None:
        handler = Handler(self.handle, frozenset({"t"}), None, HandlerOptions(**handling))
        self.running = HandlerRuntime(handler, group="g", dead_letters={}, context=CONTEXT)
        self.queue: WorkQueue = self.running.queue
        self.sender = Sender()
        assert self.running.publisher is not None
        self.running.publisher.use(self.sender)
        self.started: list[int] = []
        self.failure: Exception | None = None

    async def handle(self, record: Record) -> bytes | None:
        self.started.append(record.offset)
        return b"%d" % record.offset

    async def guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ConsumerError as error:
            self.failure = error


class WaitingBench(PublishingBench):
    async def handle(self, record: Record) -> bytes | None:
        await asyncio.sleep(0.001 * (record.offset % 3))
        return await super().handle(record)


class FilteringBench(PublishingBench):
    async def handle(self, record: Record) -> bytes | None:
        result = await super().handle(record)
        return result if record.offset % 5 == 4 else None


class BatchBench(PublishingBench):
    async def handle(self, records: list[Record]) -> list[bytes]:  # type: ignore[override]
        return [b"%d" % each.offset for each in records]


@asynccontextmanager
async def open_publishing(bench: PublishingBench) -> AsyncIterator[PublishingBench]:
    tasks: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as group:

        def start(work: Coroutine[Any, Any, None], name: str) -> None:
            task = group.create_task(bench.guarded(work), name=name)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        bench.running.start(start)
        try:
            yield bench
        finally:
            bench.queue.stop()
            for task in tasks:
                task.cancel()


def new(kind: type[PublishingBench] = PublishingBench, **handling: Any) -> PublishingBench:
    return kind(**{"publish": "billed", "concurrency": 2, "ordering": "none", **handling})


@simulated(seeds=range(3))
@pytest.mark.parametrize("kind", [PublishingBench, WaitingBench])
async def test_unacknowledged_results_occupy_no_worker(
    kind: type[PublishingBench],
) -> None:
    async with open_publishing(new(kind)) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(200)])
        await asyncio.sleep(1)
        assert sorted(bench.started) == [*range(200)]
        assert (work.ledger.committable(), bench.queue.load.count) == (0, 200)
        assert not bench.queue.is_idle
        await bench.sender.acknowledge(b"1")
        assert work.ledger.committable() == 0
        await bench.sender.acknowledge(b"0")
        assert work.ledger.committable() == 2
        await bench.sender.acknowledge_all()
        assert work.ledger.committable() == 200
        assert (bench.queue.load.count, bench.queue.load.size) == (0, 0)
        assert (bench.queue.finished, bench.queue.is_idle) == (200, True)


@simulated(seeds=range(3))
@pytest.mark.parametrize("ordering", ["key", "none"])
async def test_a_run_continues_after_records_with_unacknowledged_results(
    ordering: str,
) -> None:
    async with open_publishing(new(FilteringBench, ordering=ordering)) as bench:
        begin_run = Mock(wraps=bench.queue.begin_run)
        bench.queue.begin_run = begin_run  # type: ignore[method-assign]
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n, b"%d" % (n % 20)) for n in range(100)])
        await settle()
        assert begin_run.call_count == 1
        assert len(bench.started) == (84 if ordering == "key" else 100)
        assert (work.ledger.committable(), bench.queue.finished) == (4, 80)
        await bench.sender.acknowledge_all()
        assert sorted(bench.started) == [*range(100)]
        assert (work.ledger.committable(), bench.queue.finished) == (100, 100)
        assert (work.busy, bench.queue.load.count, bench.queue.load.size) == ({}, 0, 0)


@simulated(seeds=range(3))
async def test_records_without_a_result_are_finished_immediately() -> None:
    async with open_publishing(new(FilteringBench, ordering="key")) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n, b"%d" % n) for n in range(100)])
        await settle()
        assert (len(bench.started), bench.queue.finished) == (100, 80)
        await bench.sender.acknowledge_all()
        assert (work.ledger.committable(), work.busy) == (100, {})


@simulated(seeds=range(3))
@pytest.mark.parametrize("ordering", ["key", "partition"])
async def test_the_next_record_of_a_key_starts_after_the_acknowledgement(ordering: str) -> None:
    async with open_publishing(new(ordering=ordering)) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n, b"k") for n in range(3)])
        for number in range(3):
            await settle()
            assert bench.started == [*range(number + 1)]
            await bench.sender.acknowledge(b"%d" % number)
        assert work.ledger.committable() == 3


@simulated(seeds=range(3))
async def test_an_item_whose_result_is_not_written_is_retried() -> None:
    async with open_publishing(new(retry=Retry(2, backoff_ms=1))) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(3)])
        await settle()
        await bench.sender.refuse(b"0", b"1")
        await bench.sender.acknowledge(b"2")
        await asyncio.sleep(1)
        assert bench.started[:3] == [0, 1, 2]
        assert sorted(bench.started[3:]) == [0, 1]
        assert work.ledger.committable() == 0
        await bench.sender.acknowledge_all()
        assert work.ledger.committable() == 3
        assert bench.running.failures.counts["failed"] == 2


@simulated(seeds=range(3))
async def test_a_result_that_is_not_written_stops_the_app() -> None:
    async with open_publishing(new()) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0)])
        await settle()
        await bench.sender.refuse(b"0")
        assert isinstance(bench.failure, HandlerFailed)
        assert work.ledger.committable() == 0
        assert bench.queue.is_idle


@simulated(seeds=range(3))
async def test_a_batch_is_finished_when_all_of_its_results_are_written() -> None:
    async with open_publishing(new(BatchBench, batch=Batch(3))) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(3)])
        await settle()
        for value in (b"2", b"0"):
            await bench.sender.acknowledge(value)
            assert work.ledger.committable() == 0
        await bench.sender.acknowledge(b"1")
        assert work.ledger.committable() == 3


@simulated(seeds=range(3))
async def test_a_partition_is_not_idle_before_the_acknowledgement() -> None:
    async with open_publishing(new()) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0), record(1)])
        await settle()
        bench.queue.hold(work)
        async with asyncio.TaskGroup() as group:
            released = group.create_task(bench.queue.wait_idle(work))
            await bench.sender.acknowledge(b"0")
            assert not released.done()
            await bench.sender.acknowledge(b"1")
            assert released.done()
        assert work.ledger.committable() == 2


@simulated(seeds=range(3))
async def test_a_drain_waits_for_acknowledgements() -> None:
    async with open_publishing(new()) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0)])
        await settle()
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(drain([bench.queue], grace=10))
            await settle()
            assert not draining.done()
            await bench.sender.acknowledge(b"0")
            assert await draining
        assert work.ledger.committable() == 1


@simulated(seeds=range(3))
async def test_a_drain_that_times_out_reports_unacknowledged_items() -> None:
    async with open_publishing(new()) as bench:
        works = [bench.queue.open(tp, 0, None) for tp in (A, B)]
        for work in works:
            submit(bench.queue, work, [record(0, tp=work.partition)])
        await settle()
        drained = await drain([bench.queue], grace=1)
        assert drained.cut_short == {A: [0], B: [0]}
        assert bench.queue.is_idle


@simulated(seeds=range(3))
@pytest.mark.parametrize("fails", [False, True])
async def test_an_acknowledgement_after_the_loss_of_the_partition_is_ignored(
    *, fails: bool
) -> None:
    async with open_publishing(new()) as bench:
        lost = bench.queue.open(A, 0, None)
        submit(bench.queue, lost, [record(0)])
        await settle()
        bench.queue.end(lost)
        assert bench.queue.is_idle
        work = bench.queue.open(A, 0, None)
        batch = bench.sender.batches.pop(b"0")
        submit(bench.queue, work, [record(0)])
        await settle()
        assert bench.started == [0, 0]
        if fails:
            batch.failed(RecordTooLarge("billed[0]"))
        else:
            batch.written(0, 0)
        await settle()
        assert (work.ledger.committable(), bench.queue.load.count) == (0, 1)
        assert bench.failure is None
        await bench.sender.acknowledge(b"0")
        assert work.ledger.committable() == 1


class CountingFence:
    """A fence that counts how often its deadline is read."""

    def __init__(self) -> None:
        self.end = inf
        self.looks = 0

    @property
    def deadline(self) -> float:
        self.looks += 1
        return self.end


@simulated(seeds=range(3))
async def test_the_deadline_is_read_once_for_several_items() -> None:
    async with open_publishing(new()) as bench:
        fence = CountingFence()
        work = bench.queue.open(A, 0, fence)
        submit(bench.queue, work, [record(n) for n in range(64)])
        await settle()
        assert len(bench.started) == 64
        assert fence.looks < 16
        fence.end = -inf
        submit(bench.queue, work, [record(64)])
        await settle()
        assert len(bench.started) == 64
        fence.end = inf
        await asyncio.sleep(1)
        assert len(bench.started) == 65
        await bench.sender.acknowledge_all()
