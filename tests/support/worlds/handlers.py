"""Apps on a fake Kafka: production code above the sockets, and random faults."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

from asyncconsumer import ConsumerApp, Record, TopicPartition
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConnectFailed, ConnectionLost, NoBrokerAnswered
from asyncconsumer.handlers.commit_metadata import decode
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.pool import BrokerOpener
from asyncconsumer.testing.fake_kafka.complete import CompleteCluster
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.types import Address
from tests.support.helpers import by_protocol


def make_app(
    cluster: GroupCluster, seed: int = 2, opener: BrokerOpener | None = None, **options: Any
) -> ConsumerApp:
    environment = Environment(
        open_broker=opener or cluster.open,
        randomness=Random(seed),
        clock=asyncio.get_running_loop().time,
    )
    settings = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 500,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 1_000,
    }
    return environment.run(ConsumerApp, **by_protocol({**settings, **options}))


@asynccontextmanager
async def cluster_of(brokers: int = 1, partitions: int = 1) -> AsyncIterator[CompleteCluster]:
    async with CompleteCluster(Random(1), brokers=brokers, topic_partitions=None) as cluster:
        cluster.add_topic("t", partitions)
        yield cluster


async def until(condition: Any, seconds: float = 300) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


class Member:
    """The network of a process, which can fail and recover."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.online = True
        self._cluster = cluster
        self._connections: list[BrokerConnection] = []

    async def open(self, address: Address, config: ConnectionConfig) -> BrokerConnection:
        if not self.online:
            await asyncio.sleep(0.1)
            raise ConnectFailed(address, "the network is down")
        connection = await self._cluster.open(address, config)
        self._connections.append(connection)
        return connection

    def disconnect(self) -> None:
        self.online = False
        for connection in self._connections:
            connection.close(ConnectionLost(Address("k", 1), "the network is down"))


class World:
    """Members that join and leave, brokers that fail, and handlers with random delays."""

    def __init__(self, seed: int, cluster: GroupCluster) -> None:
        self.chance = Random(seed)
        self.cluster = cluster
        self.finished: dict[TopicPartition, Counter[int]] = defaultdict(Counter)
        self.committed_offsets: dict[TopicPartition, int] = {}
        self.leaving: list[asyncio.Event] = []
        self.members: list[Member] = []
        self.committed_beyond = 0

    def reconnect_all(self) -> None:
        """Restore the network of all members."""
        for member in self.members:
            member.online = True

    async def member(self, ordering: Any) -> None:
        leaving, network = asyncio.Event(), Member(self.cluster)
        self.leaving.append(leaving)
        self.members.append(network)
        seed = self.chance.randrange(10**6)
        app = make_app(self.cluster, seed, opener=network.open, shutdown_grace_ms=200)
        chance = Random(self.chance.random())

        @app.handler("t", ordering=ordering, concurrency=5, max_in_flight=60)
        async def handle(record: Record) -> None:
            tp = TopicPartition(record.topic, record.partition)
            assert record.offset >= self.committed(tp), f"{tp}@{record.offset} was committed"
            await asyncio.sleep(chance.expovariate(3))
            self.finished[tp][record.offset] += 1

        with suppress(NoBrokerAnswered):  # the member lost its network during the start
            async with app:
                await leaving.wait()

    def committed(self, tp: TopicPartition) -> int:
        row = self.cluster.storage.offsets.get("g", {}).get(tp)
        return 0 if row is None else int(row["offset"])

    def check(self) -> None:
        """Check that every committed record was finished."""
        for (topic, number), row in self.cluster.storage.offsets.get("g", {}).items():
            tp, retained = TopicPartition(topic, number), row["offset"]
            assert retained >= self.committed_offsets.get(tp, 0)
            self.committed_offsets[tp] = retained
            beyond = decode(retained, row["metadata"])
            self.committed_beyond += bool(beyond)
            offsets = [
                *range(retained),
                *(n for start, stop in beyond for n in range(start, stop)),
            ]
            missing = [n for n in offsets if n not in self.finished[tp]]
            assert not missing, f"{tp}: committed {retained}, never finished {missing[:10]}"

    def done(self) -> bool:
        return all(
            set(self.finished[tp]) >= set(range(self.cluster.view.partition(tp).log.end))
            for tp in (TopicPartition("t", n) for n in range(3))
        )


def apply_random_event(world: World, group: asyncio.TaskGroup, ordering: str) -> None:
    chance, cluster = world.chance, world.cluster
    what = chance.random()
    if what < 0.3 and len(world.members) < 6:
        group.create_task(world.member(ordering))
    elif what < 0.45 and len(world.leaving) > 1:
        world.leaving.pop(0).set()
    elif what < 0.6:
        cluster.move_coordinator("g")
    elif what < 0.75:
        cluster.reset_connections(chance.choice([1, 2, 3]))
    elif what < 0.85 and world.members:
        chance.choice(world.members).disconnect()
    elif what < 0.95:
        world.reconnect_all()


async def run_schedule(seed: int) -> None:
    async with GroupCluster(Random(seed), brokers=3) as cluster:
        cluster.add_topic("t", 3)
        world = World(seed, cluster)
        ordering = world.chance.choice(["none", "partition", "key"])
        async with asyncio.TaskGroup() as group:
            for _ in range(25):
                for number in range(3):
                    cluster.append("t", number, world.chance.randrange(6))
                apply_random_event(world, group, ordering)
                await asyncio.sleep(world.chance.expovariate(1))
                world.check()
            world.reconnect_all()
            group.create_task(world.member(ordering))
            await asyncio.sleep(1)
            await until(world.done)
            world.check()
            for leaving in world.leaving:
                leaving.set()
