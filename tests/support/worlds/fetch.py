"""A fetch engine on a fake cluster, its readers, and random faults."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random
from typing import Any, Final

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.errors import ConfigError
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.records import decoding
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster, RecordPayload
from asyncconsumer.types import TopicPartition

BUDGET: Final = 64 * 2**10
FETCH: Final = FetchConfig(
    max_partition_fetch_bytes=4096, fetch_max_bytes=16384, fetch_max_wait_ms=500
)


@asynccontextmanager
async def engine_on(
    cluster: FakeCluster, fetch: FetchConfig | None = None, **options: Any
) -> AsyncIterator[FetchManager]:
    """Open a fetch manager with a client of its own."""
    session = KafkaClient(
        cluster.config(), patience_ms=0, randomness=Random(2), opener=cluster.open
    )
    async with session:
        manager = FetchManager(
            session.brokers,
            session.cluster,
            fetch or FetchConfig(),
            EngineConfig(**options),
            randomness=Random(3),
        )
        async with manager:
            yield manager


class InvariantViolated(AssertionError):
    """A violated invariant."""


class Reader:
    """A stream and its reader. Every record is checked when it is delivered."""

    def __init__(self, number: int, manager: FetchManager, world: "World") -> None:
        self.number = number
        self.channel = manager.channel()
        self.stream = Stream(self.channel)
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._world = world

    async def read(self) -> None:
        randomness = self._world.randomness
        async for record in self.stream:
            self._world.delivered(self, record)
            if not self.may_read.is_set():
                await self.may_read.wait()
            if randomness.random() < 0.05:
                await asyncio.sleep(randomness.random() * 0.2)


class World:
    """A world that tracks owners, their start offsets and deliveries."""

    def __init__(self, cluster: FakeCluster, manager: FetchManager, randomness: Random) -> None:
        self.cluster = cluster
        self.manager = manager
        self.randomness = randomness
        self.readers = [Reader(number, manager, self) for number in range(3)]
        self.targets: dict[TopicPartition, FetchTarget] = {}
        self.owner: dict[TopicPartition, Reader] = {}
        self.expected: dict[TopicPartition, int] = defaultdict(int)
        self.epoch = 0

    def delivered(self, reader: Reader, record: decoding.Record) -> None:
        tp = TopicPartition(record.topic, record.partition)
        payload = RecordPayload.of(record.value)
        if self.owner.get(tp) is not reader:
            raise InvariantViolated(
                f"{tp} at {record.offset} was delivered to {reader.number}, not its owner"
            )
        if record.offset != self.expected[tp]:
            raise InvariantViolated(
                f"{tp}: {record.offset} was delivered in place of {self.expected[tp]}"
            )
        if (payload.topic, payload.partition, payload.offset) != (*tp, record.offset):
            raise InvariantViolated(f"{tp} at {record.offset} is {payload}")
        self.expected[tp] = record.offset + 1

    def check_budget(self) -> None:
        if self.manager.budget.peak > BUDGET:
            raise InvariantViolated(f"{self.manager.budget.peak} of {BUDGET} bytes were used")

    # --- fetch targets ---------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, partition.number)
            for topic in self.cluster.view.topics.values()
            for partition in topic.partitions
        ]

    def assign(self, tp: TopicPartition, reader: Reader) -> None:
        """Move a partition to another reader, which continues at the expected offset."""
        self.revoke(tp)
        self.epoch += 1
        self.owner[tp] = reader
        self.targets[tp] = FetchTarget(reader.channel, self.expected[tp], self.epoch)

    def revoke(self, tp: TopicPartition) -> None:
        if (before := self.owner.pop(tp, None)) is not None:
            # the last delivered record is not acknowledged, so it is redelivered
            self.expected[tp] = before.stream.finished().get(tp, self.expected[tp])
            before.stream.forget(tp)
            del self.targets[tp]

    def pause(self, tp: TopicPartition) -> None:
        if tp in self.targets:
            self.targets[tp] = self.targets[tp]._replace(paused=not self.targets[tp].paused)

    def reconcile(self) -> None:
        self.manager.reconcile(self.targets)

    def everything_was_read(self) -> bool:
        return all(
            self.expected[tp] == self.cluster.view.partition(tp).log.high
            for tp in self.partitions()
        )

    async def finish(self) -> None:
        """Repair all faults, and check that all records are read."""
        for node in self.cluster.brokers:
            heal(self.cluster, node)
        for reader in self.readers:
            reader.may_read.set()
        for tp in self.partitions():
            if tp not in self.targets:
                self.assign(tp, self.randomness.choice(self.readers))
            self.targets[tp] = self.targets[tp]._replace(paused=False)
        self.reconcile()
        try:
            async with asyncio.timeout(60):
                while not self.everything_was_read():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            missing = {
                str(tp): (self.expected[tp], self.cluster.view.partition(tp).log.high)
                for tp in self.partitions()
                if self.expected[tp] != self.cluster.view.partition(tp).log.high
            }
            raise InvariantViolated(f"not read: {missing}, {self.manager.progress()}") from None


def heal(cluster: FakeCluster, node: int) -> None:
    cluster.restore(node)
    cluster.thaw(node)
    cluster.start(node)
    cluster.catch_up(node)
    cluster.slow(node, 0)


def all_faults(world: World) -> list[Callable[[], object]]:
    """Return the possible faults. Each picks its target at random."""
    return [*cluster_faults(world), *user_faults(world)]


def user_faults(world: World) -> list[Callable[[], object]]:
    chance = world.randomness

    def at() -> TopicPartition:
        return chance.choice(world.partitions())

    def toggle_reader() -> None:
        reader = chance.choice(world.readers)
        (reader.may_read.clear if reader.may_read.is_set() else reader.may_read.set)()

    def move_partitions() -> None:
        for _ in range(chance.randint(1, 4)):
            world.assign(at(), chance.choice(world.readers))
        world.reconcile()

    def revoke() -> None:
        for _ in range(chance.randint(1, 4)):
            world.revoke(at())
        world.reconcile()

    def pause() -> None:
        world.pause(at())
        world.reconcile()

    return [toggle_reader, toggle_reader, move_partitions, move_partitions, revoke, pause, pause]


def cluster_faults(world: World) -> list[Callable[[], object]]:
    cluster, chance = world.cluster, world.randomness

    def node() -> int:
        return chance.choice(list(cluster.brokers))

    def at() -> TopicPartition:
        return chance.choice(world.partitions())

    def move() -> None:
        with suppress(ConfigError):  # the broker is not alive
            cluster.move_leader(at(), node())

    def kill() -> None:
        if len(cluster.view.endpoints) > 1:
            cluster.kill(node())

    def go_stale() -> None:
        # with racks a replica may be read, and a real leader has all records of a replica
        if cluster.brokers[1].endpoint.rack is None:
            cluster.go_stale(node())

    def code() -> int:
        return chance.choice((3, 5, 6, 9, 56, 70, 71, 74, 75, 78))

    return [
        move,
        move,
        move,
        lambda: cluster.append(*at(), chance.randint(1, 60), batches=chance.randint(1, 6), size=50),
        lambda: cluster.append(*at(), chance.randint(1, 60), batches=chance.randint(1, 6), size=50),
        kill,
        lambda: cluster.freeze(node()),
        lambda: cluster.black_hole(node()),
        lambda: cluster.reset_connections(node()),
        lambda: heal(cluster, node()),
        lambda: heal(cluster, node()),
        lambda: heal(cluster, node()),
        lambda: cluster.drop_sessions(node()),
        lambda: cluster.slow(node(), chance.random()),
        go_stale,
        lambda: cluster.throttle(node(), chance.random()),
        lambda: cluster.fail_next(1, code()),
        lambda: cluster.fail_next(3, 5),
        lambda: cluster.change_address(chance.choice((2, 3))),  # broker 1 keeps its address
    ]


async def run_schedule(seed: int, *, steps: int = 40) -> None:
    """Run random faults and changes of targets. Afterwards all records must be read."""
    chance = Random(seed)
    racks, rack = (("x", "y", "z"), "y") if chance.random() < 0.3 else (None, "")
    async with FakeCluster(
        Random(seed + 1), sessions=chance.choice((0, 1, 1000)), racks=racks
    ) as cluster:
        cluster.add_topic("a", 4)
        cluster.add_topic("b", 2, replicas=2)
        session = KafkaClient(
            cluster.config(), patience_ms=0, randomness=Random(seed + 2), opener=cluster.open
        )
        config = EngineConfig(
            max_buffered_bytes=BUDGET, num_consumer_fetchers=chance.choice((1, 1, 2))
        )
        async with session:
            fetch = replace(FETCH, client_rack=rack)
            manager = FetchManager(
                session.brokers, session.cluster, fetch, config, randomness=Random(seed + 3)
            )
            async with manager:
                await _play(World(cluster, manager, chance), steps)
            if manager.budget.used:
                raise InvariantViolated(f"{manager.budget.used} bytes were not released")


async def _play(world: World, steps: int) -> None:
    for tp in world.partitions():
        world.cluster.append(*tp, 40, batches=4, size=50)
        world.assign(tp, world.randomness.choice(world.readers))
    world.reconcile()
    faults = all_faults(world)
    async with asyncio.TaskGroup() as group:
        for reader in world.readers:
            group.create_task(reader.read())
        for _ in range(steps):
            await asyncio.sleep(world.randomness.expovariate(4))
            world.randomness.choice(faults)()
            world.check_budget()
        await world.finish()
        world.check_budget()
        world.manager.reconcile({})
        for reader in world.readers:
            reader.channel.close()
