"""The fetch engine and its stream, as the cases of `benchmarks.engine` use them."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from asyncconsumer import Consumer as Member
from asyncconsumer import SimpleConsumer, TopicPartition
from asyncconsumer.config import ConnectionConfig, EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.protocol.messages import EARLIEST
from asyncconsumer.streams.stream import Stream
from benchmarks._child import Consumer, Delays, Figures, Watch, memory, run_one

_BUDGET_MB: Final = 32
_SLOW_RECORDS, _SLOW_SECONDS = 256, 0.004  # with records of 1 KB, at most 60 MB/s


@asynccontextmanager
async def engine(servers: str, budget_mb: int = _BUDGET_MB) -> AsyncIterator[FetchManager]:
    """Return an async context manager that opens a fetch engine with a consumer's settings."""
    config = EngineConfig(max_buffered_bytes=budget_mb * 2**20)
    connections = ConnectionConfig(bootstrap_servers=servers)
    async with (
        KafkaClient(connections, patience_ms=60_000) as session,
        FetchManager(
            session.brokers, session.cluster, FetchConfig(), config, randomness=Random()
        ) as manager,
    ):
        yield manager


def stream(manager: FetchManager, topic: str, partitions: int) -> Stream:
    """Return one stream that reads all partitions of a topic from their beginning."""
    channel = manager.channel()
    manager.reconcile(
        {
            TopicPartition(topic, number): FetchTarget(channel, EARLIEST)
            for number in range(partitions)
        }
    )
    return Stream(channel)


async def read(servers: str, topic: str, *, partitions: int, count: int) -> Figures:
    """Read a stream with `async for`. The time includes the start of the engine."""
    watch = Watch()
    seen = 0
    async with engine(servers) as manager:
        async for _record in stream(manager, topic, partitions):
            seen += 1
            if seen == count:
                break
    return watch.figures(seen)


async def read_opened(servers: str, topic: str, *, partitions: int, count: int) -> Figures:
    """Read a stream with `async for`. The time begins when the engine is open."""
    async with engine(servers) as manager:
        watch = Watch()
        seen = 0
        async for _record in stream(manager, topic, partitions):
            seen += 1
            if seen == count:
                break
        return watch.figures(seen)


async def read_as_member(servers: str, topic: str, *, partitions: int, count: int) -> Figures:
    """Read a `Consumer` with automatic commits. The time begins when it has its assignment."""
    async with Member(
        topic,
        bootstrap_servers=servers,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1000,
    ) as consumer:
        assert len(await consumer.wait_assigned()) == partitions
        watch = Watch()
        seen = 0
        async for _record in consumer:
            seen += 1
            if seen == count:
                break
        return watch.figures(seen)


async def read_simply(servers: str, topic: str, *, partitions: int, count: int) -> Figures:
    """Read the only partition of a topic with `async for` over `SimpleConsumer.read`."""
    assert partitions == 1
    watch = Watch()
    seen = 0
    async with SimpleConsumer(servers) as consumer:
        async for _record in consumer.read(topic, 0):
            seen += 1
            if seen == count:
                break
    return watch.figures(seen)


async def idle(
    servers: str, topic: str, *, partitions: int, settle: float, seconds: float
) -> Figures:
    """Measure the CPU time while all partitions are empty.

    The engine first gets `settle` seconds to start. Then it is measured for `seconds`.
    """
    async with engine(servers) as manager:
        waiting = stream(manager, topic, partitions)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_count(waiting, 1))
            await asyncio.sleep(settle)
            assert all(progress.node_id is not None for progress in manager.progress().values())
            cpu = time.process_time()
            await asyncio.sleep(seconds)
            cpu = time.process_time() - cpu
            task.cancel()
    return {"cpu_percent": cpu / seconds * 100, "peak_rss_mb": memory("VmHWM")}


async def latency(servers: str, topic: str) -> Figures:
    """Measure the delay of each record."""
    delays = Delays()
    async with engine(servers) as manager:
        async for record in stream(manager, topic, 1):
            if not delays.arrived(record.value or b"0"):
                break
    return delays.figures()


async def start(servers: str, topic: str, *, partitions: int) -> Figures:
    """Measure the time until the first record."""
    watch = Watch()
    async with engine(servers) as manager:
        async for _record in stream(manager, topic, partitions):
            taken = watch.figures(1)
            break
    return {"ms": 1e3 / taken["records_per_s"], "cpu_ms": taken["cpu_s_per_million"] / 1e3}


async def streams(
    servers: str, topic: str, *, existing: int, reading: int, partitions: int, each: int
) -> Figures:
    """Read the first `reading` of `existing` streams, with `each` records of each partition.

    The other streams are not read. Each stream has `partitions` partitions.
    """
    watch = Watch()
    async with engine(servers) as manager:
        channels = [manager.channel() for _ in range(existing)]
        manager.reconcile(
            {
                TopicPartition(topic, number): FetchTarget(channels[number // partitions], EARLIEST)
                for number in range(existing * partitions)
            }
        )
        async with asyncio.TaskGroup() as group:
            for channel in channels[:reading]:
                group.create_task(_count(Stream(channel), partitions * each))
    return watch.figures(reading * partitions * each)


async def _count(records: Stream, limit: int) -> None:
    seen = 0
    async for _record in records:
        seen += 1
        if seen == limit:
            break


async def slowly(
    servers: str, topic: str, *, partitions: int, count: int, budget_mb: int
) -> Figures:
    """Read more slowly than the broker sends, so that the engine's budget is always used up.

    Return the memory before, the peak of the memory, and the peak of the budget, in MB.
    """
    before = memory("VmRSS")
    seen = 0
    async with engine(servers, budget_mb) as manager:
        async for _record in stream(manager, topic, partitions):
            seen += 1
            if seen == count:
                break
            if seen % _SLOW_RECORDS == 0:
                await asyncio.sleep(_SLOW_SECONDS)
        peak = manager.budget.peak / 2**20
    return {"rss_before_mb": before, "peak_rss_mb": memory("VmHWM"), "peak_budget_mb": peak}


CONSUMERS: Final[dict[str, Consumer]] = {
    "read": read,
    "read simply": read_simply,
    "read, opened": read_opened,
    "read as a member": read_as_member,
    "idle": idle,
    "latency": latency,
    "latency, uvloop": latency,
    "start": start,
    "streams": streams,
    "slowly": slowly,
}


if __name__ == "__main__":
    run_one(CONSUMERS)
