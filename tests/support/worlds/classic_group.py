"""Classic groups on a fake Kafka: production code in each member, and random faults."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any, Final, Self

from asyncconsumer.config import ConnectionConfig, EngineConfig, FetchConfig
from asyncconsumer.errors import ConnectFailed, ConsumerError
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.group.classic.config import ClassicGroupConfig
from asyncconsumer.group.classic.member import MemberState as ClassicState
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.subscription import PatternSubscription, Subscription, TopicSubscription
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.rebalance import Listeners, Rebalancer
from asyncconsumer.records import decoding
from asyncconsumer.streams.routes import TopicRoutes
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import State
from asyncconsumer.testing.fake_kafka.broker import Fate
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.types import Address, TopicPartition

GROUP: Final = "g"
APIS: Final = (8, 9, 11, 12, 13, 14)  # commit, fetch offsets, join, heartbeat, leave, sync
OFFSET_FETCH: Final = 9
UNSTABLE: Final = 88
KINDS: Final[Sequence[Sequence[type[Assignor]]]] = (
    [RangeAssignor],
    [RoundRobinAssignor],
    [StickyAssignor],
    [CooperativeStickyAssignor],
    [CooperativeStickyAssignor],
    [CooperativeStickyAssignor, RangeAssignor],
)


class InvariantViolated(AssertionError):
    """A violated invariant."""


class Process:
    """A process with the parts of a consumer, opened together."""

    def __init__(self, member: "Member", world: "World") -> None:
        chance = Random(world.chance.random())
        self._listeners = Listeners(before_releasing=member.delay_revocation)
        config = ConnectionConfig(bootstrap_servers=world.cluster.bootstrap_servers)
        self.client = KafkaClient(config, patience_ms=10_000, opener=member.open, randomness=chance)
        coordinator = Coordinator(GROUP, self.client.brokers, self.client.cluster)
        self.membership = ClassicMembership(
            coordinator,
            self.client.cluster,
            world.config(member.instance),
            world.subscription,
            [kind() for kind in world.kinds],
            randomness=chance,
        )
        self.manager = FetchManager(
            self.client.brokers,
            self.client.cluster,
            FetchConfig(),
            EngineConfig(auto_offset_reset="earliest"),
            randomness=chance,
        )
        store = KafkaOffsets(
            coordinator,
            patience_ms=5_000,
            randomness=chance,
            identity=lambda: self.membership.identity,
        )
        self.committer = Committer(store)
        self.stream: Stream
        self.rebalancer: Rebalancer
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for resource in (self.client, self.membership, self.manager):
            await self._stack.enter_async_context(resource)
        clock = asyncio.get_running_loop().time
        self.stream = Stream(self.manager.channel(), self.membership, clock)
        self.rebalancer = Rebalancer(
            self.membership,
            self.manager,
            self.committer,
            TopicRoutes([self.stream]),
            auto_offset_reset="earliest",
            auto_commit=True,
            listeners=self._listeners,
        )
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    def may_deliver(self, tp: TopicPartition) -> bool:
        now = asyncio.get_running_loop().time()
        return tp in self.rebalancer.reading and now < self.membership.deadline

    async def commit_periodically(self) -> None:
        while True:
            await asyncio.sleep(1)
            if not self.membership.lost:
                try:
                    await self.committer.commit(self.rebalancer.finished())
                except ConsumerError:
                    continue

    async def shut_down(self, follower: asyncio.Task[None]) -> None:
        await self.rebalancer.idle.wait()
        follower.cancel()
        await asyncio.wait({follower})
        end = asyncio.get_running_loop().time() + 20
        for step in (self.rebalancer.stop, self.committer.flush, self.membership.leave):
            try:
                async with asyncio.timeout_at(end):
                    await step()
            except (TimeoutError, ConsumerError):
                continue
        self.stream.channel.close()


class Member:
    """A process with a network that can fail and recover."""

    def __init__(self, name: str, world: "World", *, static: bool) -> None:
        self.name = name
        self.instance = name if static else None
        self.online = asyncio.Event()
        self.online.set()
        self.leaving = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.may_revoke = asyncio.Event()
        self.may_revoke.set()
        self.max_delay = world.chance.choice(
            (0.0, 0.1, 1.0)
        )  # the longest delay of a record, in seconds
        self.process: Process | None = None
        self._connections: list[BrokerConnection] = []
        self._world = world

    async def open(self, address: Address, config: ConnectionConfig) -> BrokerConnection:
        connection = None
        if self.online.is_set():
            connection = await self._world.cluster.open(address, config)
        if connection is not None and self.online.is_set():
            self._connections = [
                connection for connection in self._connections if not connection.is_closed
            ] + [connection]
            return connection
        if connection is not None:
            connection.close()
        await asyncio.sleep(0.1)
        raise ConnectFailed(address, "the network is down")

    async def delay_revocation(self, _: Collection[TopicPartition]) -> None:
        await self.may_revoke.wait()

    def disconnect(self) -> None:
        self.online.clear()
        self.close_connections()

    def close_connections(self) -> None:
        for connection in self._connections:
            if not connection.is_closed:
                connection._transport.end()  # type: ignore[attr-defined] # of the fake

    async def live(self) -> None:
        """Stay in the group until asked to leave. When cancelled, stop without LeaveGroup."""
        try:
            async with Process(self, self._world) as process, asyncio.TaskGroup() as group:
                self.process = process
                background = [
                    group.create_task(process.committer.run()),
                    group.create_task(process.commit_periodically()),
                ]
                reader = group.create_task(self._read(process))
                follower = group.create_task(process.rebalancer.run())
                await self.leaving.wait()
                self.may_read.set()
                self.may_revoke.set()
                await process.shut_down(follower)
                await asyncio.wait({reader})
                for task in background:
                    task.cancel()
        finally:
            self.process = None

    async def _read(self, process: Process) -> None:
        chance = self._world.chance
        while True:
            try:
                async for record in process.stream:
                    self._world.delivered(self, record)
                    if not self.may_read.is_set():
                        await self.may_read.wait()
                    if self.max_delay and chance.random() < 0.5:
                        await asyncio.sleep(chance.random() * self.max_delay)
            except ConsumerError as error:
                if not error.retriable:
                    raise
            else:
                return


class World:
    """The group, and what was delivered and committed."""

    def __init__(
        self, cluster: GroupCluster, chance: Random, kinds: Sequence[type[Assignor]] | None
    ) -> None:
        self.cluster = cluster
        self.chance = chance
        self.kinds = kinds or chance.choice(KINDS)
        self.eager = not all(kind.cooperative for kind in self.kinds)
        self.subscription: Subscription = chance.choice(
            (TopicSubscription(["a", "b"]), PatternSubscription("[ab]"))
        )
        self.members: dict[Member, asyncio.Task[None]] = {}
        self.seen: dict[TopicPartition, set[int]] = defaultdict(set)
        self.committed: dict[TopicPartition, int] = {}
        self.free_names: list[str] = []  # of static members that died
        cluster.storage.on_commit = self.on_commit
        self._made = 0

    def config(self, instance: str | None) -> ClassicGroupConfig:
        return ClassicGroupConfig(
            group_id=GROUP,
            group_instance_id=instance,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            rebalance_timeout_ms=10_000,
            metadata_refresh_ms=2_000,
        )

    # --- invariants ------------------------------------------------------------------------------

    def delivered(self, member: Member, record: decoding.Record) -> None:
        tp = TopicPartition(record.topic, record.partition)
        assert member.process is not None
        state = member.process.membership._member.state
        if self.eager and state in (ClassicState.JOINING, ClassicState.SYNCING):
            raise InvariantViolated(f"{member.name} has not revoked {tp} when it joins")
        for other in self.members:
            if other is not member and other.process and other.process.may_deliver(tp):
                raise InvariantViolated(
                    f"{tp} at {record.offset} was delivered to {member.name}, and {other.name} "
                    "may deliver it, too"
                )
        self.seen[tp].add(record.offset)

    def on_commit(self, group: str, member_id: str, position: tuple[str, int], offset: int) -> None:
        partition = TopicPartition(*position)
        before = self.committed.get(partition, 0)
        if offset < before:
            raise InvariantViolated(
                f"{position}: the commit went back from {before} to {offset}, by {member_id}"
            )
        if not set(range(before, offset)) <= self.seen[partition]:
            raise InvariantViolated(
                f"{position}: {offset} was committed, and not everything before was delivered"
            )
        self.committed[partition] = offset

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, partition.number)
            for name, topic in self.cluster.view.topics.items()
            for partition in topic.partitions
        ]

    def everything_was_read(self) -> bool:
        return all(self.seen[tp] >= set(range(self.cluster.end(tp))) for tp in self.partitions())

    def settled(self) -> bool:
        """Return whether members have the current generation, and each partition one owner."""
        group = self.cluster.groups.get(GROUP)
        owned: list[TopicPartition] = []
        for member in self.members:
            if member.leaving.is_set() or member.process is None:
                continue
            identity = member.process.membership.identity
            if group is None or identity is None or identity.generation != group.generation:
                return False
            owned += member.process.rebalancer.reading
        return sorted(owned) == sorted(self.partitions())

    # --- events and faults -----------------------------------------------------------------------

    def join(self, group: asyncio.TaskGroup) -> None:
        static = self.chance.random() < 0.3
        if static and self.free_names:
            name = self.free_names.pop()
        else:
            self._made += 1
            name = f"m{self._made}"
        member = Member(name, self, static=static)
        self.members[member] = group.create_task(member.live())

    def some_member(self) -> Member | None:
        existing = [member for member in self.members if not member.leaving.is_set()]
        return self.chance.choice(existing) if existing else None

    def kill(self, member: Member) -> None:
        """Kill a process without a leave. A static member may return."""
        self.members.pop(member).cancel()
        if member.instance is not None:
            self.free_names.append(member.name)

    def grow(self) -> None:
        count, places = len(self.cluster.view.topic("a").partitions), self.cluster.view.endpoints
        if count < 7 and len(places) == len(self.cluster.brokers):
            self.cluster.add_partitions("a", count + 1)

    def open_transaction(self) -> None:
        """Open a transaction with offsets of the group, which cannot be loaded meanwhile."""
        self.cluster.fail_next(OFFSET_FETCH, UNSTABLE, times=self.chance.randint(1, 30))

    def repair(self) -> None:
        for node, broker in self.cluster.brokers.items():
            if broker.state is State.DOWN:
                self.cluster.start(node)
            self.cluster.thaw(node)
            self.cluster.restore(node)
        for member in self.members:
            member.online.set()

    async def finish(self, group: asyncio.TaskGroup) -> None:
        """Repair all faults, wait until all is assigned and read, and let all members leave."""
        self.cluster.forget_fates()
        self.cluster.forget_troubles()
        self.repair()
        self.grow()
        for member in self.members:
            member.may_read.set()
            member.may_revoke.set()
            member.max_delay = 0.0
        if self.some_member() is None:
            self.join(group)
        for tp in self.partitions():
            self.cluster.append(*tp, 3)
        try:
            async with asyncio.timeout(120):
                while not (self.everything_was_read() and self.settled()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise InvariantViolated(f"the group did not settle: {self.observed()}") from None
        for member in self.members:
            member.leaving.set()

    def observed(self) -> str:
        missing = {
            str(tp): sorted(set(range(self.cluster.end(tp))) - self.seen[tp])[:3]
            for tp in self.partitions()
        }
        members = {
            member.name: (
                member.process.membership._member.state.name,
                member.process.membership.identity,
                [str(tp) for tp in member.process.rebalancer.reading],
            )
            for member in self.members
            if member.process
        }
        group = self.cluster.groups.get(GROUP)
        existing = group and (group.phase.name, group.generation, list(group.members))
        return f"{missing=} {members=} {existing=}"


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
        with_member(world.kill),
        with_member(lambda member: member.disconnect()),
        with_member(lambda member: member.disconnect()),
        with_member(lambda member: member.close_connections()),
        with_member(lambda member: member.online.set()),
        with_member(lambda member: toggle(member.may_read)),
        with_member(lambda member: toggle(member.may_revoke)),
    ]


def server_faults(world: World) -> list[Callable[[], object]]:
    chance, cluster = world.chance, world.cluster

    def node() -> int:
        return chance.choice(list(cluster.brokers))

    def append() -> None:
        cluster.append(*chance.choice(world.partitions()), chance.randint(1, 30))

    def lose() -> None:
        cluster.lose_next(chance.choice(APIS), chance.choice(list(Fate)))

    def move() -> None:
        if cluster.view.endpoints:
            cluster.move_coordinator(GROUP, loading=chance.choice((0.0, 0.5)))

    def kill() -> None:
        if len(cluster.view.endpoints) == len(cluster.brokers):
            cluster.kill(node())

    return [
        lambda: cluster.reset_connections(node()),
        lambda: cluster.freeze(node()),
        lambda: cluster.black_hole(node()),
        kill,
        move,
        world.open_transaction,
        world.grow,
        lose,
        lose,
        lose,
        world.repair,
        world.repair,
        append,
        append,
        append,
    ]


async def run_schedule(
    seed: int, *, steps: int = 25, kinds: Sequence[type[Assignor]] | None = None
) -> None:
    chance = Random(seed)
    async with GroupCluster(Random(seed + 1), brokers=2) as cluster:
        cluster.add_topic("a", 3)
        cluster.add_topic("b", 2)
        world = World(cluster, chance, kinds)
        for tp in world.partitions():
            cluster.append(*tp, 10)
        async with asyncio.TaskGroup() as group:
            for _ in range(chance.randint(1, 3)):
                world.join(group)
            faults = all_faults(world, group)
            for _ in range(steps):
                await asyncio.sleep(chance.expovariate(0.6))
                chance.choice(faults)()
            await world.finish(group)
