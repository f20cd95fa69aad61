"""What becomes of a wish: a member, its stream, and who follows and commits."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple, Protocol, TypeAlias

from asyncconsumer.chunks.channel import Channel
from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.interceptors import Interceptors, ToldStore
from asyncconsumer.consumer.listener import listeners
from asyncconsumer.consumer.memberships import GroupMember, member
from asyncconsumer.consumer.watchdog import Watchdog
from asyncconsumer.consumer.wishes import Wish, named
from asyncconsumer.errors import SubscriptionConflict
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.fetch.session import Session
from asyncconsumer.following import Following
from asyncconsumer.group.manual import ManualMembership
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.offsets.nowhere import Nowhere
from asyncconsumer.offsets.own import OwnStore
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.outside import Outside
from asyncconsumer.rebalancer import Rebalancer
from asyncconsumer.streams.routes import Routes
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.tasks.scope import Scope

Member: TypeAlias = GroupMember | ManualMembership


StreamKind: TypeAlias = Callable[
    [Channel, Fence | None, Callable[[], float] | None, int | None], Stream
]
"""`Stream`, or a class of streams that are made in the same way."""


class OpenStream(Protocol):
    """Makes a stream for what is read; of a kind, if one is given."""

    def __call__(self, kind: StreamKind = Stream) -> Stream:
        """A new one."""


class Given(NamedTuple):
    """What the user gave besides options."""

    listeners: list[object]
    offsets: OffsetStore | None
    interceptors: Interceptors
    outside: Outside

    def commits(self, config: ConsumerConfig) -> bool:
        """Whether there is a place to keep offsets."""
        return self.offsets is not None or config.member.group_id is not None


class Joined(NamedTuple):
    """A wish that is being fulfilled."""

    wish: Wish
    membership: Member
    stream: Stream
    following: Following
    open_stream: "OpenStream"
    stack: AsyncExitStack  # of what must be closed in the end

    def wanting(self, wish: Wish) -> "Joined":
        """The same, with another wish of the same kind."""
        if isinstance(wish, frozenset) and isinstance(self.membership, ManualMembership):
            self.following.rebalancer.rebalanced.clear()  # until this one was dealt with
            self.membership.assign(wish)
        elif (
            not isinstance(wish, frozenset)
            and not isinstance(self.membership, ManualMembership)
            and type(wish) is type(self.wish)
        ):
            self.membership.subscribe(wish)
        else:
            raise SubscriptionConflict(named(self.wish), named(wish))
        return self._replace(wish=wish)

    async def end(self) -> None:
        """Stop reading, commit, leave."""
        try:
            await self.following.end()
        finally:
            await self.stack.aclose()


async def join(
    wish: Wish,
    config: ConsumerConfig,
    given: Given,
    kafka: Session,
    manager: FetchManager,
    scope: Scope,
) -> Joined:
    """Begin to read what is wished for, with tasks of that scope."""
    coordinator = Coordinator(config.member.group_id or "", kafka.brokers, kafka.cluster)
    membership = _membership(wish, config, given, coordinator, kafka)
    in_group = not isinstance(membership, ManualMembership)

    def open_stream(kind: StreamKind = Stream) -> Stream:
        return kind(
            manager.channel(),
            membership if in_group else None,  # what is not certainly ours is not handed out
            given.outside.clock,
            config.member.consumer_timeout_ms,
        )

    stream = open_stream()
    committer = Committer(_store(config, given, coordinator, membership))
    commits = config.member.enable_auto_commit and given.commits(config)
    rebalancer = Rebalancer(
        membership,
        manager,
        committer,
        Routes([stream]),
        auto_offset_reset=config.engine.auto_offset_reset,
        auto_commit=commits,
        listeners=listeners(given.listeners, config.member.listener_timeout_ms),
        grace=config.member.revoke_grace_ms / 1000,
    )
    who = "the consumer" if config.member.group_id is None else f"group {config.member.group_id}"
    following = Following(who, membership, committer, rebalancer)
    async with AsyncExitStack() as stack:
        if not isinstance(membership, ManualMembership):
            await stack.enter_async_context(membership)
            if config.member.heartbeat_thread:
                await stack.enter_async_context(_watchdog(config, membership))
        following.start(scope, config.member.auto_commit_interval_ms if commits else None)
        return Joined(wish, membership, stream, following, open_stream, stack.pop_all())


def _membership(
    wish: Wish, config: ConsumerConfig, given: Given, coordinator: Coordinator, kafka: Session
) -> Member:
    if isinstance(wish, frozenset):
        return ManualMembership(wish)
    return member(
        config.member,
        wish,
        coordinator,
        kafka.cluster,
        client_rack=config.fetch.client_rack,
        metadata_refresh_ms=config.engine.metadata_refresh_ms,
        randomness=given.outside.randomness,
    )


def _store(
    config: ConsumerConfig, given: Given, coordinator: Coordinator, membership: Member
) -> OffsetStore:
    store: OffsetStore = Nowhere()
    if given.offsets is not None:
        store = OwnStore(given.offsets, lambda: membership.deadline)
    elif config.member.group_id is not None:
        store = KafkaOffsets(
            coordinator,
            patience_ms=config.member.commit_timeout_ms,
            randomness=given.outside.randomness,
            identity=lambda: membership.identity,
            stable_only=config.fetch.committed_only,
        )
    return ToldStore(store, given.interceptors) if given.interceptors else store


def _watchdog(config: ConsumerConfig, membership: GroupMember) -> Watchdog:
    return Watchdog(
        membership,
        config.connection,
        interval=config.member.heartbeat_interval_ms / 1000,
        most=config.member.max_blocked_ms / 1000,
    )
