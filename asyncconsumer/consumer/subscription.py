"""An active subscription: a membership, its stream, and the tasks that rebalance and commit."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.health import HealthState, health_of
from asyncconsumer.consumer.interceptors import InterceptedStore, Interceptors
from asyncconsumer.consumer.listener import ListenerList, listeners
from asyncconsumer.consumer.membership_factory import GroupMember, in_zookeeper, member
from asyncconsumer.consumer.poll_interval import leave_when_exceeded, suspend_when_exceeded
from asyncconsumer.consumer.progress_bar import Bar
from asyncconsumer.consumer.resources import Resources
from asyncconsumer.consumer.spans import TracedStore
from asyncconsumer.consumer.stop_offsets import ends_of
from asyncconsumer.consumer.subscription_spec import ManualPartitions, SubscriptionSpec, describe
from asyncconsumer.consumer.topic_check import TopicCheck
from asyncconsumer.consumer.transactions import Transactions
from asyncconsumer.consumer.watchdog import Watchdog
from asyncconsumer.environment import Environment
from asyncconsumer.errors import SubscriptionConflict
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.co_assignment import CoAssignedMembership
from asyncconsumer.group.manual import GrouplessMembership, ManualMembership, TopicsMembership
from asyncconsumer.group.membership import Membership
from asyncconsumer.group.zookeeper.membership import ZooKeeperMembership
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.offsets.null import NullOffsetStore
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.offsets.user import UserOffsetStore
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.rebalance.ports import Ends
from asyncconsumer.rebalance.runner import MembershipRunner
from asyncconsumer.streams.at_most_once import AtMostOnceStream, CommitOffsets
from asyncconsumer.streams.batched import BatchedStream
from asyncconsumer.streams.idle import IdleTimeout
from asyncconsumer.streams.routes import TopicRoutes
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.types import FindIdentity, TopicPartition

_AT_REST: Final = (HealthState.IDLE, HealthState.CONSUMING, HealthState.HANDLER_BOUND)
Member: TypeAlias = GroupMember | ZooKeeperMembership | ManualMembership | TopicsMembership
S = TypeVar("S", bound=Stream)
StreamKind: TypeAlias = Callable[
    [Channel, Fence | None, Callable[[], float] | None, IdleTimeout | None], S
]
"""A class of streams, or a function with the same parameters."""


TransactionalStore: TypeAlias = Callable[[OffsetStore, FindIdentity], OffsetStore]
"""A function that returns an offset store whose commits are transactions.

The arguments are the store of the group, from which offsets are loaded, and a function that returns
the identity of the member.
"""


class OpenStream(Protocol):
    """A function that opens a stream for a subscription."""

    def __call__(self, kind: StreamKind[S]) -> S:
        """Return a new stream of the class `kind`, with the options of the consumer."""


class Collaborators(NamedTuple):
    """The objects that a consumer uses besides its options, most of them from the user."""

    listeners: ListenerList
    offsets: OffsetStore | None
    interceptors: Interceptors
    environment: Environment
    recorder: Recorder
    co_assigned: Mapping[str, Sequence[str]] = {}
    """The retry topics of each source topic. Members get partitions with equal numbers of both."""
    in_transactions: "TransactionalStore | None" = None
    """Returns the offset store of a consumer whose commits are transactions."""
    suspends: bool = False
    """Whether a reader that exceeds `max_poll_interval_ms` only releases its partitions."""

    def runner(self, membership: Member) -> Membership:
        """Return the membership whose assignments the rebalancer applies.

        If there are co-assigned topics, it adds their partitions to each assignment of
        `membership`.
        """
        if not self.co_assigned:
            return membership
        return CoAssignedMembership(membership, self.co_assigned)

    def commits(self, config: ConsumerConfig) -> bool:
        """Return whether the consumer can commit offsets."""
        return self.offsets is not None or config.member.group_id is not None

    def keeps_metadata(self, config: ConsumerConfig) -> bool:
        """Return whether the offset store keeps the metadata of committed offsets.

        ZooKeeper cannot store it, and custom stores may not.
        """
        zookeeper = config.zookeeper
        in_kafka = zookeeper is None or (
            # with two stores the larger offset is used, and that may be ZooKeeper's
            zookeeper.offsets_storage == "kafka" and not zookeeper.dual_commit_enabled
        )
        return self.offsets is None and config.member.group_id is not None and in_kafka


class ActiveSubscription(NamedTuple):
    """A subscription with its membership, stream and tasks, all of them running."""

    spec: SubscriptionSpec
    membership: Member
    stream: BatchedStream
    runner: MembershipRunner
    transactions: Transactions
    open_stream: OpenStream
    kind: StreamKind[BatchedStream]  # at most once, or batched
    topics: TopicCheck
    onlookers: list[asyncio.Task[None]]  # monitoring tasks, which `end` stops first
    stack: AsyncExitStack  # closes the membership and the watchdog

    def takes(self, spec: SubscriptionSpec) -> bool:
        """Return whether the membership can change to `spec` without leaving its group.

        Raise SubscriptionConflict if only one of the two is a manual assignment.
        """
        if isinstance(spec, ManualPartitions) != isinstance(self.spec, ManualPartitions):
            raise SubscriptionConflict(describe(self.spec), describe(spec))
        return not isinstance(self.membership, ZooKeeperMembership)

    def changed_to(self, spec: SubscriptionSpec) -> "ActiveSubscription":
        """Change the subscription of the membership. Return this object with the new `spec`.

        Call this only if `takes` has returned True for `spec`.
        """
        membership = self.membership
        if isinstance(membership, GrouplessMembership):
            self.runner.rebalancer.rebalanced.clear()  # set again after this change
        if isinstance(membership, ManualMembership):
            assert isinstance(spec, ManualPartitions)
            membership.assign(spec, spec.starts)
        else:
            assert not isinstance(membership, ZooKeeperMembership)
            assert not isinstance(spec, ManualPartitions)
            membership.subscribe(spec)
        return self._replace(spec=spec)

    @property
    def is_assigned(self) -> bool:
        """Whether the subscription has its assignment and no rebalance is running."""
        rebalancer = self.runner.rebalancer
        at_rest = rebalancer.rebalanced.is_set() and rebalancer.idle.is_set()
        return at_rest and self.membership.is_current

    async def end(self) -> None:
        """Stop reading, commit, and leave the group."""
        try:
            for task in self.onlookers:
                await _ended(task)  # before the state that they monitor changes
            await self.runner.end()
        finally:
            await self.stack.aclose()


def _stream_kind(config: ConsumerConfig, commit: CommitOffsets) -> StreamKind[BatchedStream]:
    return partial(AtMostOnceStream, commit=commit) if _early(config) else BatchedStream


async def join(
    topics: TopicCheck,
    config: ConsumerConfig,
    parts: Collaborators,
    connected: Resources,
    scope: Scope,
) -> ActiveSubscription:
    """Join the group for the subscription in `topics`, and start its tasks in `scope`."""
    spec, kafka, manager = topics.spec, connected.kafka, connected.manager
    coordinator = Coordinator(config.member.group_id or "", kafka.brokers, kafka.cluster)
    membership = _membership(spec, config, parts, coordinator, connected, scope)
    store = _opened_store(config, parts, coordinator, membership, connected)
    committer = Committer(store, manager.events.counts, manager.recorder)

    def nothing_comes() -> bool:
        """Return whether the consumer is healthy. If it is, no record means the end of the log."""
        return health_of(membership, rebalancer, manager).state in _AT_REST

    open_stream = _opener(config, parts, connected, membership, nothing_comes)

    async def commit(offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return await runner.commit(offsets, rewind=False)

    kind = _stream_kind(config, commit)
    stream = open_stream(kind)
    rebalancer = _rebalancer(
        config, parts, membership, manager, committer, stream, await ends_of(config, spec, kafka)
    )
    owner = "the consumer" if config.member.group_id is None else f"group {config.member.group_id}"
    runner: MembershipRunner = MembershipRunner(owner, membership, committer, rebalancer)
    commits = config.auto_commit and parts.commits(config)
    async with AsyncExitStack() as stack:
        await _enter(stack, config, parts, membership)
        runner.start(scope, config.member.auto_commit_interval_ms if commits else None)
        onlookers = [
            scope.start(work, name)
            for name, work in _onlookers(config, parts, topics, membership, runner, manager)
        ]
        transactions = Transactions(coordinator.group_id, membership, rebalancer, manager)
        return ActiveSubscription(
            spec,
            membership,
            stream,
            runner,
            transactions,
            open_stream,
            kind,
            topics,
            onlookers,
            stack.pop_all(),
        )


async def _enter(
    stack: AsyncExitStack, config: ConsumerConfig, parts: Collaborators, membership: Member
) -> None:
    """Open the membership in `stack`, if Kafka coordinates its group.

    Start the thread that sends its heartbeats while the event loop is blocked.
    """
    if isinstance(membership, GrouplessMembership | ZooKeeperMembership):
        return
    await stack.enter_async_context(membership)
    # virtual time does not pass while a callback runs, so nothing can block that loop
    if config.member.heartbeat_thread and parts.environment.virtual_clock() is None:
        await stack.enter_async_context(_watchdog(config, membership))


def _onlookers(
    config: ConsumerConfig,
    parts: Collaborators,
    topics: TopicCheck,
    membership: Member,
    runner: MembershipRunner,
    manager: FetchManager,
) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
    """Yield the name and the coroutine of each monitoring task of a consumer."""
    rebalancer, limit_ms = runner.rebalancer, config.member.max_poll_interval_ms
    yield "check topics", topics.run(lambda: bool(rebalancer.reading))
    if limit_ms is not None and parts.suspends and isinstance(membership, ClassicMembership):
        commits = config.auto_commit and parts.commits(config)
        watch = suspend_when_exceeded(runner, membership, limit_ms, auto_commit=commits)
        yield "poll interval", watch
    elif limit_ms is not None and not isinstance(membership, GrouplessMembership):
        group_id = config.member.group_id or ""
        yield "poll interval", leave_when_exceeded(runner, group_id, limit_ms)
    if config.delivery.progress:
        yield "progress", Bar(describe(topics.spec), rebalancer, manager).run()


def store_without_members(
    config: ConsumerConfig, parts: Collaborators, connected: Resources
) -> OffsetStore:
    """Return the offset store of the group, for a consumer that did not join the group."""
    kafka = connected.kafka
    coordinator = Coordinator(config.member.group_id or "", kafka.brokers, kafka.cluster)
    return _opened_store(config, parts, coordinator, ManualMembership(()), connected)


def _early(config: ConsumerConfig) -> bool:
    return config.delivery.commit_policy == "at_most_once"


def _rebalancer(
    config: ConsumerConfig,
    parts: Collaborators,
    membership: Member,
    manager: FetchManager,
    committer: Committer,
    stream: Stream,
    ends: Ends,
) -> Rebalancer:
    return Rebalancer(
        parts.runner(membership),
        manager,
        committer,
        TopicRoutes([stream]),
        auto_offset_reset=config.engine.auto_offset_reset,
        auto_commit=(config.auto_commit or _early(config)) and parts.commits(config),
        listeners=listeners(parts.listeners, config.member.listener_timeout_ms),
        grace=config.member.revoke_grace_ms / 1000,
        ends=ends,
        rewind=_early(config),
    )


def _opener(
    config: ConsumerConfig,
    parts: Collaborators,
    connected: Resources,
    membership: Member,
    may_end: Callable[[], bool],
) -> OpenStream:
    ends, raises = config.delivery.idle_timeout_ms, config.member.consumer_timeout_ms
    idle = IdleTimeout(ends, may_end) if ends else IdleTimeout(raises) if raises else None
    # records are delivered only before the deadline; without a group there is none
    fence = None if isinstance(membership, GrouplessMembership) else membership

    def open_stream(kind: StreamKind[S]) -> S:
        return kind(connected.manager.channel(), fence, parts.environment.virtual_clock(), idle)

    return open_stream


def _membership(
    spec: SubscriptionSpec,
    config: ConsumerConfig,
    parts: Collaborators,
    coordinator: Coordinator,
    connected: Resources,
    scope: Scope,
) -> Member:
    if isinstance(spec, ManualPartitions):
        return ManualMembership(spec, spec.starts)
    if connected.zookeeper is not None:
        return connected.zookeeper.member(in_zookeeper(spec), connected.kafka, scope)
    if config.member.group_id is None:
        return TopicsMembership(
            connected.kafka.cluster,
            spec,
            exclude_internal=config.member.exclude_internal_topics,
            metadata_refresh_ms=config.engine.metadata_refresh_ms,
        )
    return member(
        config.member,
        spec,
        coordinator,
        connected.kafka.cluster,
        client_rack=config.fetch.client_rack,
        metadata_refresh_ms=config.engine.metadata_refresh_ms,
        randomness=parts.environment.randomness,
        suspensions=Suspensions(parts.environment.clock_offsets),
    )


def _opened_store(
    config: ConsumerConfig,
    parts: Collaborators,
    coordinator: Coordinator,
    membership: Member,
    connected: Resources,
) -> OffsetStore:
    """Return the offset store for a member. Interceptors are called after its commits."""
    store = _store(config, parts, coordinator, membership, connected)
    if config.delivery.tracing and parts.commits(config):
        store = TracedStore(store, config.member.group_id)
    return InterceptedStore(store, parts.interceptors) if parts.interceptors else store


def _store(
    config: ConsumerConfig,
    parts: Collaborators,
    coordinator: Coordinator,
    membership: Member,
    connected: Resources,
) -> OffsetStore:
    if parts.offsets is not None:
        patience_ms = config.member.commit_timeout_ms
        return UserOffsetStore(
            parts.offsets, membership, coordinator.group_id, patience_ms=patience_ms
        )
    if isinstance(membership, ZooKeeperMembership):
        assert connected.zookeeper is not None
        return connected.zookeeper.offsets(membership, connected.kafka)
    if config.member.group_id is None:
        return NullOffsetStore()
    manual, in_transactions = config.delivery.commit_policy == "manual", parts.in_transactions
    store = KafkaOffsets(
        coordinator,
        patience_ms=config.member.commit_timeout_ms,
        randomness=parts.environment.randomness,
        identity=lambda: membership.identity,
        # manual commits may be made by transactions, and an open transaction changes the offsets
        stable_only=config.fetch.committed_only or manual or in_transactions is not None,
    )
    if in_transactions is None:
        return store
    return in_transactions(store, lambda: membership.identity)


def _watchdog(config: ConsumerConfig, membership: GroupMember) -> Watchdog:
    return Watchdog(
        membership,
        config.connection,
        interval=config.member.heartbeat_interval_ms / 1000,
        max_blocked=config.member.max_loop_blocked_ms / 1000,
    )


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
