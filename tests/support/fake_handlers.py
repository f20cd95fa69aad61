"""Handlers without a broker, whose calls a test finishes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import inf
from random import Random
from typing import Any

from asyncconsumer import ConsumerError, Record, TopicPartition
from asyncconsumer.environment import Environment
from asyncconsumer.events import EventBus
from asyncconsumer.handlers.handler import Handler, HandlerOptions
from asyncconsumer.handlers.partition_work import PartitionWork
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.handlers.runtime import AppContext, HandlerRuntime
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.records.decoding import RecordBlock

CONTEXT = AppContext(Environment(randomness=Random(1)), EventBus(), Recorder())
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset: int, key: bytes | None = None, tp: TopicPartition = A, size: int = 1) -> Record:
    return Record(tp.topic, tp.partition, offset, key=key, value=b"v" * size)


def submit(queue: WorkQueue, work: PartitionWork, records: Sequence[Record]) -> None:
    """Submit records as the stream does, without a check of the limits."""
    block = RecordBlock()
    block.fill(records, len(records), inf)
    queue.submit(work, block)
    work.ledger.advance_position(records[-1].offset + 1, 0)


class Bench:
    """A handler whose calls wait until a test finishes or fails them."""

    def __init__(self, **handling: Any) -> None:
        self.started: list[int] = []  # first offsets of calls, in the order of their start
        self.batches: list[list[int]] = []
        self.max_concurrent = 0
        self.pending: dict[int, asyncio.Future[None]] = {}
        self.failure: Exception | None = None
        how = HandlerOptions(**handling)
        function = self._batch if how.batch else self._one
        handler = Handler(function, frozenset({"t", *how.priorities}), None, how)
        self.running = HandlerRuntime(handler, group="g", dead_letters={}, context=CONTEXT)
        self.queue = self.running.queue

    async def _one(self, record: Record) -> None:
        await self._until_released(record.offset)

    async def _batch(self, records: list[Record]) -> None:
        self.batches.append([record.offset for record in records])
        await self._until_released(records[0].offset)

    async def _until_released(self, offset: int) -> None:
        self.started.append(offset)
        self.pending[offset] = release = asyncio.get_running_loop().create_future()
        self.max_concurrent = max(self.max_concurrent, len(self.pending))
        try:
            await release
        finally:
            del self.pending[offset]

    async def finish(self, *offsets: int) -> None:
        for offset in offsets:
            self.pending[offset].set_result(None)
        await settle()

    async def fail(self, offset: int, error: Exception) -> None:
        self.pending[offset].set_exception(error)
        await settle()

    async def work(self) -> None:
        try:
            await self.running.workers.work()
        except ConsumerError as error:
            self.failure = error


@asynccontextmanager
async def open_bench(**handling: Any) -> AsyncIterator[Bench]:
    bench = Bench(**handling)
    async with asyncio.TaskGroup() as group:
        count = bench.running.handler.handling.concurrency
        tasks = [group.create_task(bench.work()) for _ in range(count)]
        try:
            yield bench
        finally:
            for task in tasks:
                task.cancel()


async def settle() -> None:
    """Run the event loop until no task can continue without time passing."""
    for _ in range(60):
        await asyncio.sleep(0)
