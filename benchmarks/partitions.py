"""The CPU time of a consumer's operations on 1,000 and on 10,000 partitions.

    python -m benchmarks.partitions [--quick] [--json]

The consumer runs on a fake cluster with virtual time, in the same process, without a network. The
figures are the CPU time of the event loop, including the encoding and decoding of messages, without
the CPU time of the fake brokers. `growth` is the time for 10,000 partitions divided by that for
1,000, which may be about ten and not a hundred. An operation that takes 0.5 s or more for 10,000
partitions is marked as too slow. Other clients cannot run on virtual time.

subscribe: join a group as its only member, look up offsets, and fetch for the first time.
rebalance: a second member joins and gets half of the partitions. The time is that of both members.
leave: the second member leaves, and the first one gets all partitions again.
stop_at: read empty partitions to their end.
streams: divide the partitions among 8 streams.
seek: seek each partition, one by one.
commit: commit all partitions.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final, Literal, NamedTuple, TypeVar

from asyncconsumer import Consumer
from asyncconsumer.config.choices import AssignorName
from asyncconsumer.environment import Environment
from asyncconsumer.testing.fake_kafka import HANDLERS
from asyncconsumer.testing.fake_kafka.broker import Handler
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import run
from asyncconsumer.types import TopicPartition
from benchmarks._harness import arguments, heading, note, print_lines

MOST_SECONDS: Final = 0.5  # for 10,000 partitions
TOPIC: Final = "t"
T = TypeVar("T")


class Row(NamedTuple):
    case: str
    partitions: int
    seconds: float

    def as_json(self) -> dict[str, object]:
        return {"bench": "partitions", **self._asdict()}


class TimedCluster(GroupCluster):
    """A fake cluster that measures the CPU time of its brokers, in `seconds`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        super().__init__(Random(1), brokers=3, handlers=self._timed(HANDLERS))
        for broker in self.brokers.values():
            # brokers answer waiting fetches, and run the timers of groups, by this method
            broker.when_running = self._by_broker(broker.when_running)  # type: ignore[assignment, method-assign]

    def _handlers(self) -> dict[int, Handler]:
        return self._timed(super()._handlers())

    def _timed(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        return {
            key: handler._replace(answer=self._by_broker(handler.answer))
            for key, handler in handlers.items()
        }

    def _by_broker(self, work: Callable[[T], None]) -> Callable[[T], None]:
        def timed(argument: T) -> None:
            began = time.process_time()
            self._depth += 1
            try:
                work(argument)
            finally:
                self._depth -= 1
                if not self._depth:  # a nested call is part of the outer call's time
                    self.seconds += time.process_time() - began

        return timed


def make_consumer(
    cluster: GroupCluster,
    seed: int = 2,
    stop_at: Literal["end"] | None = None,
    assignor: AssignorName = "range",
) -> Consumer[Any, Any]:
    environment = Environment(
        open_broker=cluster.open,
        clock=asyncio.get_running_loop().time,
        randomness=Random(seed),
    )
    return environment.run(
        Consumer,
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_thread=False,
        stop_at=stop_at,
        partition_assignment_strategy=assignor,
    )


async def settled(consumer: Consumer[Any, Any], partitions: int) -> None:
    """Wait until this number of partitions is assigned and fetched."""
    while len(consumer.assignment) != partitions:  # noqa: ASYNC110 - on virtual time it costs nothing
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)


@asynccontextmanager
async def joined(
    cluster: GroupCluster, partitions: int, assignor: AssignorName = "range"
) -> AsyncIterator[Consumer[Any, Any]]:
    async with make_consumer(cluster, assignor=assignor) as consumer:
        await settled(consumer, partitions)
        yield consumer


Operation = Callable[[], Awaitable[None]]
Case = Callable[[GroupCluster, int], AbstractAsyncContextManager[Operation]]


@asynccontextmanager
async def subscribe(cluster: GroupCluster, partitions: int) -> AsyncIterator[Operation]:
    consumer = make_consumer(cluster)

    async def operation() -> None:
        await consumer.__aenter__()
        await settled(consumer, partitions)

    yield operation
    await consumer.__aexit__(None, None, None)


@asynccontextmanager
async def rebalance(
    cluster: GroupCluster, partitions: int, assignor: AssignorName = "range"
) -> AsyncIterator[Operation]:
    async with joined(cluster, partitions, assignor) as consumer:
        two = make_consumer(cluster, seed=3, assignor=assignor)

        async def operation() -> None:
            await two.__aenter__()
            await settled(two, partitions // 2)
            await settled(consumer, partitions - partitions // 2)

        yield operation
        await two.__aexit__(None, None, None)


@asynccontextmanager
async def leaving(
    cluster: GroupCluster, partitions: int, assignor: AssignorName = "range"
) -> AsyncIterator[Operation]:
    async with joined(cluster, partitions, assignor) as consumer:
        two = make_consumer(cluster, seed=3, assignor=assignor)
        await two.__aenter__()
        await settled(two, partitions // 2)

        async def operation() -> None:
            await two.__aexit__(None, None, None)
            await settled(consumer, partitions)

        yield operation


@asynccontextmanager
async def stop_at(cluster: GroupCluster, partitions: int) -> AsyncIterator[Operation]:
    async with make_consumer(cluster, stop_at="end") as consumer:

        async def operation() -> None:
            async for record in consumer:
                raise AssertionError(record)

        yield operation


@asynccontextmanager
async def stream(cluster: GroupCluster, partitions: int) -> AsyncIterator[Operation]:
    async with joined(cluster, partitions) as consumer:

        async def operation() -> None:
            consumer.streams(8)

        yield operation


@asynccontextmanager
async def seek(cluster: GroupCluster, partitions: int) -> AsyncIterator[Operation]:
    async with joined(cluster, partitions) as consumer:

        async def operation() -> None:
            for number in range(partitions):
                consumer.seek(TopicPartition(TOPIC, number), 0)

        yield operation


@asynccontextmanager
async def commit(cluster: GroupCluster, partitions: int) -> AsyncIterator[Operation]:
    async with joined(cluster, partitions) as consumer:

        async def operation() -> None:
            await consumer.commit()

        yield operation


CASES: Final[dict[str, Case]] = {
    "subscribe": subscribe,
    "rebalance": rebalance,
    "rebalance, sticky": partial(rebalance, assignor="sticky"),
    "rebalance, cooperative": partial(rebalance, assignor="cooperative-sticky"),
    "leave, cooperative": partial(leaving, assignor="cooperative-sticky"),
    "stop_at": stop_at,
    "streams": stream,
    "seek": seek,
    "commit": commit,
}


def measure(case: str, partitions: int, rounds: int = 1) -> Row:
    """Return the CPU time of one operation: the median of `rounds`, each on a new cluster."""
    return Row(case, partitions, statistics.median(_once(case, partitions) for _ in range(rounds)))


def _once(case: str, partitions: int) -> float:
    reported: list[float] = []

    async def measured() -> None:
        async with TimedCluster() as cluster:
            cluster.add_topic(TOPIC, partitions)
            gc.collect()
            gc.freeze()  # the garbage collector must not check the brokers' objects
            async with CASES[case](cluster, partitions) as operation:
                fake, began = cluster.seconds, time.process_time()
                await operation()
                reported.append(time.process_time() - began - (cluster.seconds - fake))

    run(measured)
    gc.unfreeze()
    return reported[0]


def main() -> None:
    chosen = arguments(__doc__).parse_args()
    few, many = (100, 1_000) if chosen.quick else (1_000, 10_000)
    rounds = 1 if chosen.quick else 3
    limit = MOST_SECONDS * many / 10_000
    if not chosen.json:
        note(heading())
        note(f"{'case':<24} {few:>10,} {many:>10,}   growth   (limit {limit:g} s)")
    for case in CASES:
        rows = [measure(case, partitions, rounds) for partitions in (few, many)]
        if chosen.json:
            print_lines(row.as_json() for row in rows)
            continue
        less, more = (row.seconds for row in rows)
        slow = "   too slow" if more >= limit else ""
        print(f"{case:<24} {less:>9.3f}s {more:>9.3f}s   {more / less:>5.1f}{slow}")


if __name__ == "__main__":
    main()
