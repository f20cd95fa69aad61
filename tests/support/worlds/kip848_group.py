"""KIP-848 groups on a fake Kafka: production code above the sockets, and random faults."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any, Final

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.errors import ConnectFailed, ConnectionLost, ConsumerError
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.kip848.config import ConsumerGroupConfig
from asyncconsumer.group.kip848.membership import ConsumerGroupMembership
from asyncconsumer.group.subscription import TopicSubscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.rebalance import Listeners, Rebalancer
from asyncconsumer.records import decoding
from asyncconsumer.streams.routes import TopicRoutes
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import HANDLERS, FakeCluster
from asyncconsumer.testing.fake_kafka.consumer_groups import ConsumerGroups
from asyncconsumer.testing.fake_kafka.coordinators import Fate
from asyncconsumer.types import Address, TopicPartition

GROUP: Final = "g"
TOPICS: Final = {"a": 4, "b": 2}
OFFSET_FETCH: Final = 9
UNSTABLE: Final = 88
_MOST_PARTITIONS: Final = 6
_SESSION: Final = 6.0
_REBALANCE_TIMEOUT: Final = 4.0
_GROUP_TRAFFIC: Final = (Traffic.HEARTBEAT, Traffic.GROUP)


class InvariantViolated(AssertionError):
    """A violated invariant."""


class MemberConnections(BrokerPool):
    """A member's connections. Those to the coordinator can fail while it still reads."""

    online = True

    async def connection(
        self, address: Address, traffic: Traffic, *, slot: int = 0
    ) -> BrokerConnection:
        if traffic in _GROUP_TRAFFIC and not self.online:
            await asyncio.sleep(0.1)
            raise ConnectFailed(address, "the network is down")
        return await super().connection(address, traffic, slot=slot)

    def disconnect(self) -> None:
        self.online = False
        for way, existing in self._opened.items():
            if way.traffic in _GROUP_TRAFFIC:
                existing.connection.close(ConnectionLost(way.address, "the network is down"))


class Member:
    """A process with a consumer."""

    def __init__(self, number: int, world: "World") -> None:
        self.name = f"m{number}"
        self.leaving = asyncio.Event()
        self.dying = False
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.listener_delay = 0.0  # the delay of listeners, in seconds
        self.world = world
        self.connections: MemberConnections | None = None
        self.membership: ConsumerGroupMembership

    def disconnect(self) -> None:
        """Lose the connections to the coordinator."""
        if self.connections is not None:
            self.connections.disconnect()

    def reconnect(self) -> None:
        """Restore the connections to the coordinator."""
        if self.connections is not None:
            self.connections.online = True

    def die(self) -> None:
        """End without a leave request."""
        self.dying = True
        self.leaving.set()

    async def _on_lost(self, partitions: Collection[TopicPartition]) -> None:
        if not self.world.has_faults and not self.leaving.is_set():
            raise InvariantViolated(f"{self.name} lost {partitions} without a fault")
        await asyncio.sleep(self.listener_delay)

    async def _on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(self.listener_delay)
        if asyncio.get_running_loop().time() < self.membership.deadline:
            self.world.check_ownership(self, partitions)

    @asynccontextmanager
    async def _open_clients(self) -> AsyncIterator[tuple[Coordinator, Cluster, FetchManager]]:
        world = self.world
        randomness = Random(world.chance.random())
        config = world.cluster.config(request_timeout_ms=5_000, connect_timeout_ms=2_000)
        connections = MemberConnections(config, randomness=randomness, opener=world.cluster.open)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(connections)
            cluster = await stack.enter_async_context(Cluster(connections, randomness=randomness))
            engine = EngineConfig(auto_offset_reset="earliest")
            fetch = FetchConfig(fetch_max_wait_ms=2_000)
            manager = FetchManager(connections, cluster, fetch, engine, randomness=randomness)
            await stack.enter_async_context(manager)
            self.connections = connections
            yield Coordinator(GROUP, connections, cluster), cluster, manager

    async def live(self) -> None:
        """Stay in the group until asked to leave or to die."""
        world, loop = self.world, asyncio.get_running_loop()
        config = ConsumerGroupConfig(
            group_id=GROUP,
            group_instance_id=self.name if world.chance.random() < 0.2 else None,
            rebalance_timeout_ms=int(_REBALANCE_TIMEOUT * 1000),
            session_timeout_ms=int(_SESSION * 1000),
        )
        randomness = Random(world.chance.random())
        async with self._open_clients() as (coordinator, cluster, manager):
            membership = self.membership = ConsumerGroupMembership(
                coordinator, cluster, config, TopicSubscription(TOPICS), randomness=randomness
            )
            stream = Stream(manager.channel(), membership, loop.time)
            store = KafkaOffsets(
                coordinator,
                patience_ms=2_000,
                randomness=randomness,
                identity=lambda: membership.identity,
            )
            committer = Committer(store)
            rebalancer = Rebalancer(
                membership,
                manager,
                committer,
                TopicRoutes([stream]),
                auto_offset_reset="earliest",
                auto_commit=True,
                listeners=Listeners(before_releasing=self._on_revoked, lost=self._on_lost),
            )
            async with membership, asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(stream))
                committing = tasks.create_task(committer.run())
                auto_committing = tasks.create_task(self._commit(rebalancer, committer))
                following = tasks.create_task(rebalancer.run())
                await self.leaving.wait()
                self.may_read.set()
                if not self.dying:
                    await self._leave(following, rebalancer, committer)
                stream.channel.close()
                for task in (reading, committing, auto_committing, following):
                    task.cancel()

    async def _leave(
        self, following: asyncio.Task[None], rebalancer: Rebalancer, committer: Committer
    ) -> None:
        """Leave the group as a consumer does."""
        await rebalancer.idle.wait()
        following.cancel()
        await asyncio.wait({following})
        for step in (rebalancer.stop, committer.flush, self.membership.leave):
            async with asyncio.timeout(30):
                await step()

    async def _commit(self, rebalancer: Rebalancer, committer: Committer) -> None:
        while True:
            await asyncio.sleep(1)
            try:
                if not self.membership.lost:
                    await committer.commit(rebalancer.finished())
            except ConsumerError as error:
                if not self.world.has_faults:
                    raise InvariantViolated(f"{self.name} cannot commit: {error}") from error

    async def _read(self, stream: Stream) -> None:
        chance = self.world.chance
        async for record in stream:
            self.world.delivered(self, record)
            if not self.may_read.is_set():
                await self.may_read.wait()
            if chance.random() < 0.1:
                await asyncio.sleep(chance.random() * 0.5)


class World:
    """The group, and what was delivered and committed."""

    def __init__(self, cluster: FakeCluster, groups: ConsumerGroups, chance: Random) -> None:
        self.cluster = cluster
        self.groups = groups
        self.chance = chance
        self.members: dict[Member, asyncio.Task[None]] = {}
        self.seen: dict[TopicPartition, set[int]] = defaultdict(set)
        self.has_faults = True
        groups.on_commit = self.check_commit
        self._made = 0

    # --- invariants ------------------------------------------------------------------------------

    def delivered(self, member: Member, record: decoding.Record) -> None:
        tp = TopicPartition(record.topic, record.partition)
        holder = self.groups.holder(GROUP, self.cluster.view, tp)
        member_id = member.membership._state.member_id
        if holder != member_id:
            raise InvariantViolated(
                f"{tp} at {record.offset} was delivered to {member_id}, and {holder} has it"
            )
        self.seen[tp].add(record.offset)

    def check_ownership(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        member_id = member.membership._state.member_id
        for tp in partitions:
            if (holder := self.groups.holder(GROUP, self.cluster.view, tp)) != member_id:
                raise InvariantViolated(
                    f"{tp} was revoked from {member_id}, and {holder} has it already"
                )

    def check_commit(self, tp: TopicPartition, offset: int) -> None:
        before = self.groups.committed[GROUP].get(tp, 0)
        if offset < before:
            raise InvariantViolated(f"{tp}: the commit went back from {before} to {offset}")
        if not set(range(before, offset)) <= self.seen[tp]:
            raise InvariantViolated(
                f"{tp}: {offset} was committed, and not everything before was delivered"
            )

    # --- events and faults -----------------------------------------------------------------------

    def join(self, group: asyncio.TaskGroup) -> None:
        self._made += 1
        member = Member(self._made, self)
        self.members[member] = group.create_task(member.live())

    def live_members(self) -> list[Member]:
        return [member for member in self.members if not member.leaving.is_set()]

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, partition.number)
            for name in TOPICS
            for partition in self.cluster.view.topic(name).partitions
        ]

    def unread(self) -> dict[str, list[int]]:
        return {
            str(tp): missing[:3]
            for tp in self.partitions()
            if (missing := sorted(set(range(self.cluster.end(tp))) - self.seen[tp]))
        }

    def open_transaction(self) -> None:
        """Open a transaction with offsets of the group, which cannot be loaded meanwhile."""
        self.cluster.fail_next(OFFSET_FETCH, UNSTABLE, times=self.chance.randint(1, 30))

    def repair(self) -> None:
        for node in self.cluster.brokers:
            self.cluster.start(node)
            self.cluster.thaw(node)
            self.cluster.restore(node)
        for member in self.members:
            member.reconnect()

    async def finish(self, group: asyncio.TaskGroup) -> None:
        """Repair all faults, wait until all is read and committed, and let all members leave."""
        self.groups.fates.clear()
        self.cluster.forget_troubles()
        self.repair()
        for member in self.members:
            member.may_read.set()
            member.listener_delay = 0.0
        if not self.live_members():
            self.join(group)
        await asyncio.sleep(2 * _SESSION)  # until sessions and rebalances have timed out
        self.has_faults = False
        for tp in self.partitions():
            self.cluster.append(*tp, 3)
        try:
            async with asyncio.timeout(120):
                while self.unread():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            members = self.groups.groups[GROUP].members
            raise InvariantViolated(
                f"not everything was read: {self.unread()}, {members}"
            ) from None
        await asyncio.sleep(1)  # until each last record is acknowledged
        for member in self.members:
            member.leaving.set()
        await asyncio.wait(self.members.values())
        committed = self.groups.committed[GROUP]
        uncommitted = [tp for tp in self.partitions() if committed.get(tp) != self.cluster.end(tp)]
        if uncommitted:
            raise InvariantViolated(f"not everything was committed: {uncommitted}")


def member_faults(world: World, group: asyncio.TaskGroup) -> list[Callable[[], object]]:
    """Return the possible faults of a member picked at random."""
    chance = world.chance

    def join() -> None:
        if len(world.live_members()) < 4:
            world.join(group)

    def with_member(what: Callable[[Member], object]) -> Callable[[], object]:
        def act() -> None:
            if existing := world.live_members():
                what(chance.choice(existing))

        return act

    def toggle(member: Member) -> None:
        (member.may_read.clear if member.may_read.is_set() else member.may_read.set)()

    def change_delay(member: Member) -> None:
        member.listener_delay = chance.choice((0.0, 3.0, 8.0, 8.0))

    return [
        join,
        join,
        with_member(lambda member: member.leaving.set()),
        with_member(Member.die),
        with_member(Member.disconnect),
        with_member(Member.disconnect),
        with_member(Member.reconnect),
        with_member(toggle),
        with_member(change_delay),
        with_member(change_delay),
    ]


def server_faults(world: World) -> list[Callable[[], object]]:
    chance, cluster = world.chance, world.cluster

    def node() -> int:
        return chance.choice(sorted(cluster.brokers))

    def lose() -> None:
        world.groups.fates.append(chance.choice((Fate.LOST_BEFORE, Fate.LOST_AFTER)))
        world.groups.fates[:0] = [Fate.DONE] * chance.randint(0, 3)

    def move() -> None:
        if existing := sorted(cluster.view.endpoints):
            world.groups.move(GROUP, chance.choice(existing))

    def append() -> None:
        cluster.append(*chance.choice(world.partitions()), chance.randint(1, 30))

    def grow() -> None:
        name = chance.choice(sorted(TOPICS))
        count = len(cluster.view.topic(name).partitions)
        if count < _MOST_PARTITIONS and cluster.view.endpoints:
            cluster.add_partitions(name, count + 1)

    def kill() -> None:
        if len(cluster.view.endpoints) > 1:
            cluster.kill(node())

    return [
        kill,
        lambda: cluster.freeze(node()),
        lambda: cluster.reset_connections(node()),
        world.repair,
        world.repair,
        world.repair,
        *[lose] * 3,
        *[move] * 2,
        world.open_transaction,
        *[append] * 3,
        grow,
    ]


async def run_schedule(seed: int, *, steps: int = 25, **options: Any) -> None:
    chance = Random(seed)
    groups = ConsumerGroups(Random(seed + 1), session_timeout=_SESSION, interval=2.0)
    handlers = {**HANDLERS, **groups.handlers}
    async with FakeCluster(Random(seed + 2), brokers=3, handlers=handlers) as cluster:
        world = World(cluster, groups, chance, **options)
        for topic, count in TOPICS.items():
            cluster.add_topic(topic, count)
        for tp in world.partitions():
            cluster.append(*tp, 10)
        async with asyncio.TaskGroup() as group:
            world.join(group)
            faults = [*member_faults(world, group), *server_faults(world)]
            for _ in range(steps):
                await asyncio.sleep(chance.expovariate(1.0))
                chance.choice(faults)()
                cluster.append(*chance.choice(world.partitions()), chance.randint(1, 5))
            await world.finish(group)
        groups.close()
