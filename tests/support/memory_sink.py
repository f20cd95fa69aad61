"""A sink in memory, and feeders of a fake cluster that write to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from asyncconsumer import TopicPartition
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.types import Offset
from tests.support.fake_consumer import make_consumer

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
HEARTBEAT = 12
UNKNOWN_MEMBER, REBALANCE = 25, 27
QUICK: dict[str, Any] = {
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 100,
    "partition_assignment_strategy": ["range"],
    "revoke_grace_ms": 0,
    "listener_timeout_ms": 300,
}


class MemorySink:
    """A sink in memory, without threads. `gates` delay batches in `publish`."""

    def __init__(self, *, remembers: bool = True) -> None:
        self.remembers = remembers
        self.apart = not remembers
        self.ends: dict[TopicPartition, int] = {}
        self.written: list[tuple[TopicPartition, int, int]] = []
        self.gates: dict[
            TopicPartition, asyncio.Event
        ] = {}  # the next batch of a partition waits for its event
        self.refuses: Callable[[FeedBatch], Collection[TopicPartition]] = lambda _: ()
        self.seconds_to_load = 0.0

    async def open(self) -> None:
        """Do nothing."""

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        await asyncio.sleep(self.seconds_to_load)
        return {tp: self.ends.get(tp) for tp in partitions}

    async def prepare(self, batch: FeedBatch) -> object:
        """Return None, because the batch is in memory already."""

    async def publish(self, batch: FeedBatch, prepared: object) -> Collection[TopicPartition]:
        for tp in batch.parts:
            if (gate := self.gates.pop(tp, None)) is not None:
                await gate.wait()
        away = set(self.refuses(batch))
        for tp, part in batch.parts.items():
            if tp not in away:
                self.ends[tp] = part.end
                self.written.append((tp, part.start, part.end))
        return away

    async def discard(self, prepared: object) -> None:
        """Do nothing."""

    def ranges(self, tp: TopicPartition = AT) -> list[tuple[int, int]]:
        return [(start, end) for place, start, end in self.written if place == tp]


@asynccontextmanager
async def world(partitions: int = 1, **records: int) -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", partitions)
        for number, count in enumerate(records.values()):
            cluster.append("t", number, count)
        yield cluster


def make_feeder(cluster: GroupCluster, sink: Any, **options: Any) -> SparkFeeder:
    small = {"max_records": 10, "max_wait_ms": 50, "max_in_flight": 2, "grace_ms": 1000}
    of_the_consumer = options.keys() & {"auto_offset_reset", "listener_timeout_ms", "on_poison"}
    reading = QUICK | {name: options.pop(name) for name in of_the_consumer}
    return SparkFeeder(make_consumer(cluster, **reading), sink, **{**small, **options})


async def group_has(feeder: SparkFeeder, place: TopicPartition = AT) -> Offset:
    result = (await feeder._consumer.committed([place]))[place]
    assert result is not None
    return Offset.of(result)
