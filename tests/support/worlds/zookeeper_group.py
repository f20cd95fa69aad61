"""Groups of connectors on a fake ZooKeeper and a fake Kafka, and random faults."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any, Final

from aiozk import protocol
from aiozk.protocol.request import Request

from asyncconsumer.config import ClassicConfig, ZooKeeperConfig
from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConsumerError, ServerUnusable, ZooKeeperUnavailable
from asyncconsumer.records import decoding
from asyncconsumer.streams.messages import MessageStream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper, FakeZooKeeperTransport, Fate
from asyncconsumer.types import Address, TopicPartition
from asyncconsumer.zookeeper.transport import ConnectRequest

GROUP: Final = "g"
TOPICS: Final = {"a": 4, "b": 2}
_OFFSETS: Final = f"/consumers/{GROUP}/offsets/"


class InvariantViolated(AssertionError):
    """A violated invariant."""


class Member:
    """A process with a connector, and a network that can fail and recover."""

    def __init__(self, number: int, world: "World") -> None:
        self.name = f"m{number}"
        self.online = asyncio.Event()
        self.online.set()
        self.leaving = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._transports: list[FakeZooKeeperTransport] = []
        self._world = world

    async def open_zookeeper(
        self, address: Address, config: ZooKeeperConfig, connect_request: ConnectRequest
    ) -> FakeZooKeeperTransport:
        if not self.online.is_set():
            await asyncio.sleep(0.1)
            raise ServerUnusable(address, "the network is down")
        transport = await self._world.zookeeper.open(address, config, connect_request)
        if not self.online.is_set():
            transport.drop()
            raise ServerUnusable(address, "the network is down")
        self._transports = [*self._transports[-3:], transport]
        return transport

    def disconnect(self) -> None:
        """Lose the connection to ZooKeeper, and keep those to Kafka."""
        self.online.clear()
        for transport in self._transports:
            transport.hang_up("the network is down")

    async def live(self) -> None:
        """Stay in the group until asked to leave."""
        while not self.leaving.is_set():
            try:
                await self._be_member()
            except ZooKeeperUnavailable:
                continue  # no server accepted the session

    async def _be_member(self) -> None:
        world = self._world
        loop = asyncio.get_running_loop()
        environment = Environment(
            open_broker=world.cluster.open,
            open_zookeeper=self.open_zookeeper,
            randomness=Random(world.chance.random()),
            clock=loop.time,
            now_ms=lambda: int(loop.time() * 1000),
        )
        async with environment.run(ConsumerConnector, world.config(self.name)) as connector:
            streams: dict[str, list[MessageStream[bytes, bytes]]]
            streams = await connector.create_message_streams(world.subscription)
            async with asyncio.TaskGroup() as group:
                readers = [
                    group.create_task(self._read(stream))
                    for of_topic in streams.values()
                    for stream in of_topic
                ]
                await self.leaving.wait()
                self.may_read.set()
                await connector.shutdown()
                await asyncio.wait(readers)

    async def _read(self, stream: MessageStream[Any, Any]) -> None:
        chance = self._world.chance
        while True:
            try:
                async for record in stream.records:
                    self._world.delivered(self, record)
                    if not self.may_read.is_set():
                        await self.may_read.wait()
                    if chance.random() < 0.1:
                        await asyncio.sleep(chance.random() * 0.5)
            except ConsumerError as error:
                if not error.retriable:
                    raise
            else:
                return


class World:
    """The group, and what was delivered and committed."""

    def __init__(
        self, cluster: FakeCluster, zookeeper: FakeZooKeeper, chance: Random, **options: Any
    ) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.chance = chance
        self.options = options
        self.subscription = {topic: chance.choice((1, 1, 2)) for topic in TOPICS}
        self.members: dict[Member, asyncio.Task[None]] = {}
        self.seen: dict[TopicPartition, set[int]] = defaultdict(set)
        self.committed: dict[TopicPartition, int] = {}
        self.fates: list[Fate] = []
        zookeeper.on_write = self.on_write
        self._made = 0

    def config(self, name: str) -> ClassicConfig:
        options: dict[str, Any] = {
            "zookeeper_connect": self.zookeeper.connect,
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "group_id": GROUP,
            "consumer_id": name,
            "auto_offset_reset": "smallest",
            "auto_commit_interval_ms": 1_000,
            "rebalance_backoff_ms": 500,
            "rebalance_max_retries": 20,
        }
        return ClassicConfig(**options | self.options)

    # --- invariants ------------------------------------------------------------------------------

    def delivered(self, member: Member, record: decoding.Record) -> None:
        tp = TopicPartition(record.topic, record.partition)
        node = self.zookeeper.tree.nodes.get(f"/consumers/{GROUP}/owners/{tp.topic}/{tp.partition}")
        owner = b"" if node is None else node.data or b""
        if not owner.startswith(f"{GROUP}_{member.name}-".encode()):
            raise InvariantViolated(
                f"{tp} at {record.offset} was delivered to {member.name}, not to {owner!r}"
            )
        self.seen[tp].add(record.offset)

    def on_write(self, session_id: int, request: Request) -> Fate:
        fate = self.fates.pop() if self.fates else Fate.DONE
        requests = getattr(request, "requests", None) or [request]
        for operation in requests:
            path = getattr(operation, "path", "") or ""
            if (
                path.startswith(_OFFSETS)
                and path.count("/") == 5
                and getattr(operation, "data", None)
            ):
                if not self._will_be_done(operation, path):
                    continue
                self._check_commit(path, int(operation.data), applied=fate is not Fate.LOST_BEFORE)
        return fate

    def _will_be_done(self, request: Request, path: str) -> bool:
        """Return whether the request will succeed. The server applies it after this check."""
        nodes = self.zookeeper.tree.nodes
        if isinstance(request, protocol.CreateRequest):
            return path not in nodes and path.rpartition("/")[0] in nodes
        return path in nodes

    def _check_commit(self, path: str, offset: int, *, applied: bool) -> None:
        *_, topic, partition = path.split("/")
        tp = TopicPartition(topic, int(partition))
        before = self.committed.get(tp, 0)
        if offset < before:
            raise InvariantViolated(f"{tp}: the commit went back from {before} to {offset}")
        if not set(range(before, offset)) <= self.seen[tp]:
            raise InvariantViolated(
                f"{tp}: {offset} was committed, and not everything before was delivered"
            )
        if applied:
            self.committed[tp] = offset

    # --- events and faults -----------------------------------------------------------------------

    def join(self, group: asyncio.TaskGroup) -> None:
        self._made += 1
        member = Member(self._made, self)
        self.members[member] = group.create_task(member.live())

    def some_member(self) -> Member | None:
        existing = [member for member in self.members if not member.leaving.is_set()]
        return self.chance.choice(existing) if existing else None

    def everything_was_read(self) -> bool:
        return all(
            self.seen[tp] >= set(range(self.cluster.view.partition(tp).log.high))
            for tp in self.partitions()
        )

    @staticmethod
    def partitions() -> list[TopicPartition]:
        return [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]

    async def finish(self, group: asyncio.TaskGroup) -> None:
        """Repair all faults, wait until all records are read, and let all members leave."""
        self.fates.clear()
        self.zookeeper.start()
        self.zookeeper.thaw()
        for member in self.members:
            member.online.set()
            member.may_read.set()
        if self.some_member() is None:
            self.join(group)
        for tp in self.partitions():
            self.cluster.append(*tp, 3)
        try:
            async with asyncio.timeout(120):
                while not self.everything_was_read():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            owners = {
                path: node.data
                for path, node in self.zookeeper.tree.nodes.items()
                if path.startswith(f"/consumers/{GROUP}/owners/") or "/ids/" in path
            }
            missing = {
                str(tp): sorted(
                    set(range(self.cluster.view.partition(tp).log.high)) - self.seen[tp]
                )[:3]
                for tp in self.partitions()
            }
            raise InvariantViolated(f"not everything was read: {missing}, {owners}") from None
        for member in self.members:
            member.leaving.set()


def all_faults(world: World, group: asyncio.TaskGroup) -> list[Callable[[], object]]:
    """Return the possible faults. Each picks its target at random."""
    return [*member_faults(world, group), *server_faults(world)]


def member_faults(world: World, group: asyncio.TaskGroup) -> list[Callable[[], object]]:
    def join() -> None:
        if sum(not member.leaving.is_set() for member in world.members) < 4:
            world.join(group)

    def with_member(what: Callable[[Member], object]) -> Callable[[], object]:
        def act() -> None:
            if (member := world.some_member()) is not None:
                what(member)

        return act

    def toggle(event: asyncio.Event) -> None:
        (event.clear if event.is_set() else event.set)()

    return [
        join,
        join,
        with_member(lambda member: member.leaving.set()),
        with_member(lambda member: member.disconnect()),
        with_member(lambda member: member.online.set()),
        with_member(lambda member: toggle(member.may_read)),
    ]


def server_faults(world: World) -> list[Callable[[], object]]:
    chance, zookeeper = world.chance, world.zookeeper

    def lose_a_write() -> None:
        world.fates.append(chance.choice((Fate.LOST_BEFORE, Fate.LOST_AFTER)))
        world.fates[:0] = [Fate.DONE] * chance.randint(0, 3)

    def server() -> int:
        return chance.randrange(3)

    def append() -> None:
        world.cluster.append(*chance.choice(world.partitions()), chance.randint(1, 30))

    def repair() -> None:
        zookeeper.start()
        zookeeper.thaw()
        for member in world.members:
            member.online.set()

    return [
        lambda: zookeeper.cut(server()),
        lambda: zookeeper.stop(server()),
        lambda: zookeeper.freeze(server()),
        repair,
        repair,
        lose_a_write,
        lose_a_write,
        append,
        append,
        append,
    ]


async def run_schedule(seed: int, *, steps: int = 25, **options: Any) -> None:
    chance = Random(seed)
    zookeeper = FakeZooKeeper(3, randomness=Random(seed + 1))
    async with FakeCluster(Random(seed + 2), brokers=1) as cluster:
        world = World(cluster, zookeeper, chance, **options)
        for topic, count in TOPICS.items():
            cluster.add_topic(topic, count)
        for tp in world.partitions():
            cluster.append(*tp, 10)
        async with asyncio.TaskGroup() as group:
            world.join(group)
            faults = all_faults(world, group)
            for _ in range(steps):
                await asyncio.sleep(chance.expovariate(1.5))
                chance.choice(faults)()
            await world.finish(group)
