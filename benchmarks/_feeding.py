"""The contenders of `benchmarks.feeder`: feeders and other ways to write to the same sinks.

`python -m benchmarks._feeding NAME SERVERS TOPIC OPTIONS` runs one of them.
"""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.spark.sinks.delta import DeltaSink
from asyncconsumer.spark.sinks.landing import LandingFolder
from benchmarks._child import Consumer as Contender
from benchmarks._child import Figures, Watch, run_one

_SECONDS_BETWEEN_LOOKS: Final = 0.002
_SECONDS_OF_NOTHING: Final = 2.0
_IN_FLIGHT: Final = 3
_SINKS: Final[dict[str, Any]] = {"landing": LandingFolder, "Delta": DeltaSink}


class Stalls:
    """The delays of a timer that fires every 2 ms, because the event loop was busy."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._busy = 0.0  # the largest CPU time of the loop's thread between two timers

    async def watch(self) -> None:
        while True:
            asked, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            self._late.append(time.perf_counter() - asked - _SECONDS_BETWEEN_LOOKS)
            self._busy = max(self._busy, time.thread_time() - used)

    def figures(self) -> Figures:
        return {
            "longest_stall_ms": max(self._late) * 1e3,
            "p99_stall_ms": statistics.quantiles(self._late, n=100)[98] * 1e3,
            "longest_busy_ms": self._busy * 1e3,
        }


@asynccontextmanager
async def watched() -> AsyncIterator[Stalls]:
    stalls = Stalls()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stalls.watch())
        yield stalls
        task.cancel()


class Keep:
    """A sink that keeps batches in memory."""

    remembers: Final = True
    apart: Final = False

    def __init__(self) -> None:
        self.batches: list[FeedBatch] = []

    def open(self) -> None: ...

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(partitions)

    def prepare(self, batch: FeedBatch) -> None: ...

    def publish(self, batch: FeedBatch, prepared: object) -> tuple[()]:
        self.batches.append(batch)
        return ()

    def discard(self, prepared: object) -> None: ...


def make_feeder(servers: str, topic: str, each: int, sink: Any) -> SparkFeeder:  # noqa: ANN401
    consumer = Consumer(
        topic,
        bootstrap_servers=servers,
        group_id=f"feeding-{time.time_ns()}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    return SparkFeeder(
        consumer, sink, max_records=each, max_wait_ms=60_000, max_in_flight=_IN_FLIGHT
    )


async def fed(feeder: SparkFeeder, count: int) -> None:
    """Wait until the feeder has read `count` records and written all of them to the sink."""
    feeds = feeder._state.feeds  # noqa: SLF001 - the public figures have only written records
    while sum(feed.position or 0 for feed in feeds.values()) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await feeder._write_all()  # noqa: SLF001 - closing the feeder would also leave the group


@contextlib.contextmanager
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as path:
        yield str(Path(path) / "table")


async def feed(servers: str, topic: str, kind: str, count: int, each: int) -> Figures:
    """Feed `count` records into a sink, in batches of `each` records.

    The clock starts when the partitions are assigned.
    """
    with folder() as path:
        async with watched() as stalls:
            feeder = make_feeder(servers, topic, each, _SINKS[kind](path))
            async with feeder:
                while not feeder._state.feeds:  # noqa: SLF001, ASYNC110
                    await asyncio.sleep(0.001)
                watch = Watch()
                await fed(feeder, count)
                figures = watch.figures(count)
        assert feeder.stats().records == count
        return figures | stalls.figures()


async def from_memory(
    servers: str, topic: str, kind: str, count: int, each: int, *, at_once: int = 1
) -> Figures:
    """Write the batches of a feeder from memory into the same kind of sink.

    Up to `at_once` batches are prepared at the same time. They are published in order.
    """
    keep = Keep()
    async with make_feeder(servers, topic, each, keep) as feeder:
        await fed(feeder, count)
    with folder() as path:
        sink = _SINKS[kind](path)
        sink.open()
        sink.load([place for batch in keep.batches for place in batch.parts])
        watch = Watch()
        with ThreadPoolExecutor(at_once) as pool:
            ready = (pool.map if at_once > 1 else map)(sink.prepare, keep.batches)
            for batch, prepared in zip(keep.batches, ready, strict=True):
                assert not sink.publish(batch, prepared)
        return watch.figures(sum(batch.rows for batch in keep.batches))


async def create_and_append(servers: str, topic: str, count: int, each: int) -> Figures:
    """Run a Spark job for each batch in a thread, as a program without a feeder would.

    Only an eighth of the records is written, because that takes long enough.
    """
    from asyncconsumer.testing.servers.spark import THOROUGH, spark_session

    keep, batches = Keep(), max(1, count // 8 // each)
    with spark_session(config=THOROUGH) as spark, folder() as path:

        def append(batch: FeedBatch, to: str) -> None:
            spark.createDataFrame(batch.table).write.mode("append").parquet(to)

        async with make_feeder(servers, topic, each, keep) as feeder:
            await fed(feeder, batches * each)
        append(keep.batches[0], f"{path}-warm")
        async with watched() as stalls:
            watch = Watch()
            for batch in keep.batches[:batches]:
                await asyncio.to_thread(append, batch, path)
            figures = watch.figures(sum(batch.rows for batch in keep.batches[:batches]))
    return figures | stalls.figures()


async def nothing(servers: str, topic: str, count: int, each: int) -> Figures:
    """Measure the delays of an idle event loop, which the machine causes."""
    async with watched() as stalls:
        await asyncio.sleep(_SECONDS_OF_NOTHING)
    return {"records_per_s": 0.0, "cpu_s_per_million": 0.0, "peak_rss_mb": 0.0} | stalls.figures()


FEEDERS: Final[dict[str, Contender]] = {
    **{f"feeder, {kind}": partial(feed, kind=kind) for kind in _SINKS},
    **{f"from memory, {kind}": partial(from_memory, kind=kind) for kind in _SINKS},
    **{
        f"from memory, {kind}, at once": partial(from_memory, kind=kind, at_once=_IN_FLIGHT)
        for kind in _SINKS
    },
    "nothing": nothing,
    "createDataFrame + append": create_and_append,
}


if __name__ == "__main__":
    run_one(FEEDERS)
