"""Membership in a KIP-848 group, in which the coordinator computes the assignment.

A heartbeat response may carry a new target assignment. Partitions that it removes are revoked
first. The coordinator assigns them to another member only after this member has confirmed that.
Partitions that it adds were released by others, so this member owns them at once. Unchanged
partitions are read without interruption. Heartbeats continue during all of this.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from random import Random
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from aiokafka.protocol.api import Request

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.errors import (
    BrokerError,
    ConsumerError,
    ConsumerProtocolUnsupported,
    FencedInstanceId,
)
from asyncconsumer.group.classic.attempt import RejoinPacing
from asyncconsumer.group.kip848.config import ConsumerGroupConfig
from asyncconsumer.group.kip848.session_timeout import session_timeout_ms
from asyncconsumer.group.kip848.state import (
    HeartbeatFields,
    HeartbeatReaction,
    MemberState848,
    Phase,
    Timeouts,
    reaction,
)
from asyncconsumer.group.kip848.topic_watch import Partitions, ResolvedSubscription, TopicWatch
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.subscription import Subscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.consumer_group import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
)
from asyncconsumer.types import Address, MemberIdentity

_log: Final = logging.getLogger(__name__)
_SECONDS_TO_LEAVE: Final = 5.0
_WITH_REGEXES: Final = 1  # the first heartbeat version with `topic_regex`
_NOTHING_NEW: Final = HeartbeatFields()


class ConsumerGroupMembership:
    """A member of a KIP-848 group within its ``async with`` block; iterating joins the group.

    The end of the block does not leave the group. Without `leave` the coordinator keeps the member
    until its session timeout.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: Cluster,
        config: ConsumerGroupConfig,
        subscription: Subscription,
        *,
        randomness: Random,
        suspensions: Suspensions | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        self._config = config
        self._pacing = RejoinPacing(randomness)
        self._bell = asyncio.Event()  # wakeup: send a heartbeat now
        self._news = asyncio.Event()  # wakeup: the assignment may have changed
        self._topics = TopicWatch(
            cluster, subscription, changed=self._bell, news=self._news, randomness=randomness
        )
        self._talk = MemberState848(
            str(UUID(int=randomness.getrandbits(128), version=4)),
            Timeouts(
                config.session_timeout_ms / 1000,
                config.rebalance_timeout_ms / 1000,
                suspensions or Suspensions(),
            ),
        )
        self._heartbeat: tuple[Address, Request] | None = None
        self._failure: ConsumerError | None = None
        self._heart: asyncio.Task[None] | None = None
        self._scope = Scope("consumer group membership")

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._end()
        await self._scope.__aexit__(kind, error, where)

    # --- state -----------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether this member owns nothing: it has not joined, or is fenced, or has left."""
        return self._talk.phase is not Phase.MEMBER

    @property
    def awaiting_assignment(self) -> bool:
        """Whether the first assignment of the coordinator is pending."""
        return self.lost

    @property
    def is_current(self) -> bool:
        """Whether the coordinator knows the subscription and its target assignment is reached."""
        talk, topics = self._talk, self._topics
        known = topics.is_current and talk.knows(topics.subscribed)
        return known and not self.lost and talk.owned == talk.target

    @property
    def settles_after(self) -> float:
        """Seconds after which an empty assignment is final.

        Other members may need a few heartbeats to release partitions.
        """
        return 3 * self._talk.interval

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics. Topics matched by the coordinator appear once assigned."""
        return self._topics.topics(self._talk.owned)

    @property
    def deadline(self) -> float:
        """The loop time until which this member certainly owns its partitions."""
        return self._talk.certain_until

    @property
    def last_heartbeat(self) -> float:
        """The send time of the last successful heartbeat."""
        return self._talk.last_heartbeat

    @property
    def identity(self) -> MemberIdentity | None:
        """The member id and epoch to commit with; None if this member owns nothing."""
        talk = self._talk
        if talk.phase is not Phase.MEMBER:
            return None
        return MemberIdentity(talk.member_id, talk.epoch, self._config.group_instance_id)

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """The heartbeat and its address, which another thread may send while the loop is blocked.

        It includes the owned partitions. Without them, a coordinator that is one epoch ahead would
        fence this member.
        """
        return self._heartbeat

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Record that another thread sent `heartbeat` and received no error."""
        if self._talk.phase is Phase.MEMBER:
            self._talk.heartbeat_from_thread(sent_at)

    @property
    def subscription(self) -> Subscription:
        """The current subscription."""
        return self._topics.wanted

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription."""
        self._topics.subscribe(subscription)

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Join, and yield each changed assignment until this member leaves or fails."""
        self._join()
        while True:
            if self._failure is not None:
                raise self._failure
            phase, goal = self._talk.phase, self._topics.known(self._talk.target)
            if phase is Phase.OUT:
                return
            if phase is Phase.FENCED:
                yield Assignment(lost=frozenset(self._topics.named(self._talk.owned)))
                await self._pacing.pause(self._talk.interval)
                self._talk.rejoin()
                self._bell.set()
            elif phase is Phase.MEMBER and self._is_worth_telling(goal):
                self._talk.give(goal)
                self._news.clear()
                yield self._assignment(goal)
                self._settle(goal)
            else:
                self._settle(goal)
                self._news.clear()
                await self._news.wait()

    def rebalance_pending(self) -> bool:
        """Return whether the target may have changed since the last assignment.

        If so, the next assignment is yielded even if its partitions are the same.
        """
        if due := self._news.is_set():
            self._talk.give_again()
        return due

    def _is_worth_telling(self, goal: Partitions) -> bool:
        if self._talk.given:
            return goal != self._talk.owned
        return bool(goal) or not self._talk.target  # otherwise wait for its topic names

    def _settle(self, goal: Partitions) -> None:
        """Record that only these partitions are read, and confirm that in a heartbeat."""
        self._talk.settle(goal)
        if self._talk.unacknowledged:
            self._bell.set()

    def _assignment(self, goal: Partitions) -> Assignment:
        topics = self._topics
        fresh = frozenset(topics.named(topics.fresh(goal)))
        return Assignment(dict.fromkeys(topics.named(goal), 0), fresh=fresh)

    async def leave(self) -> None:
        """Leave the group, and try to notify the coordinator for at most 5 seconds.

        A static member leaves temporarily: its assignment is kept for the session timeout.
        """
        gone = self._talk.phase is Phase.OUT
        present = not gone and self._heart is not None and (not self.lost or self._failure is None)
        self._end()
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait({self._heart})
        if not present:
            return
        static = self._config.group_instance_id is not None
        message = self._message(STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH)
        try:
            async with asyncio.timeout(_SECONDS_TO_LEAVE):
                await self._say_farewell(message)
        except TimeoutError:
            _log.warning("%s could not say that it leaves; it is waited for", self._who)

    async def _say_farewell(self, message: Request) -> None:
        delays = self._delays()
        while True:
            try:
                async with self._coordinator.reached(Traffic.HEARTBEAT) as connection:
                    await self._answer(connection, message)
                    return
            except ConsumerError as error:
                if not error.retriable:
                    _log.info("%s leaves, and was told: %s", self._who, error)
                    return
                await asyncio.sleep(next(delays))

    # --- heartbeats ------------------------------------------------------------------------------

    @property
    def _who(self) -> str:
        return f"member {self._talk.member_id} of group {self._config.group_id}"

    def _join(self) -> None:
        self._scope.check_open()
        if self._heart is None:
            self._heart = self._scope.start(self._guarded(self._live()), "group heartbeats")
            self._scope.start(self._guarded(self._topics.look()), "look at topics")
            self._scope.start(self._guarded(self._topics.name()), "name topics")

    def _end(self) -> None:
        self._talk.end()
        self._heartbeat = None
        self._news.set()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Run background work. `assignments` raises the error that ends it."""
        try:
            await work
        except ConsumerError as error:
            if isinstance(error, FencedInstanceId):
                self._end()  # another member took over; other errors leave the ownership as it is
            self._failure = self._failure or error
            self._news.set()

    async def _live(self) -> None:
        """Join, and send heartbeats forever."""
        quiet, delays, learnt = RateLimitedLogger(_log), self._delays(), False
        while True:
            self._bell.clear()
            subscribed = self._topics.subscribed
            if subscribed is None or self._talk.phase is Phase.FENCED:
                learnt = False
                await self._bell.wait()
                continue
            if not learnt:
                await self._learn_session_timeout()
                learnt = True
            try:
                due = await self._beat(subscribed)
                delays = self._delays()
            except ConsumerError as error:
                self._react(error)
                quiet.warning("%s: %s", self._who, error)
                due = asyncio.get_running_loop().time() + next(delays)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._bell.wait()

    def _delays(self) -> Iterator[float]:
        return self._pacing.waits()

    async def _learn_session_timeout(self) -> None:
        group, assumed = self._config.group_id, self._config.session_timeout_ms
        learnt = await session_timeout_ms(self._cluster, group, otherwise=assumed)
        self._talk.learn_session_timeout(learnt / 1000)

    async def _beat(self, subscribed: ResolvedSubscription) -> float:
        """Send one heartbeat and return the loop time at which the next one is due."""
        talk = self._talk
        async with self._coordinator.reached(Traffic.HEARTBEAT) as connection:
            words = talk.words(subscribed, regexes=self._takes_regexes(connection))
            sent_at = asyncio.get_running_loop().time()
            talk.sent(sent_at)
            joins = talk.phase is Phase.JOINING
            answer = await self._answer(connection, self._message(talk.epoch, words))
            if talk.heard(answer, words, sent_at):
                self._news.set()
            if joins:
                self._pacing.began()
            again = self._message(talk.epoch, HeartbeatFields(owned=talk.owned))
            self._heartbeat = connection.address, again
        return sent_at + talk.interval

    def _takes_regexes(self, connection: BrokerConnection) -> bool:
        spoken = connection.versions.get(ConsumerGroupHeartbeatRequest.API_KEY)
        if spoken is None:
            reason = f"{connection.address}, which coordinates it, does not know this protocol"
            raise ConsumerProtocolUnsupported(self._config.group_id, reason)
        regexes = spoken[1] >= _WITH_REGEXES
        if not regexes:
            self._topics.match_here()
        return regexes

    def _message(self, epoch: int, words: HeartbeatFields = _NOTHING_NEW) -> Request:
        config, everything, owned = self._config, words.everything, words.owned
        return ConsumerGroupHeartbeatRequest(
            config.group_id,
            self._talk.member_id,
            epoch,
            instance_id=config.group_instance_id,
            rack_id=config.client_rack or None if everything else None,
            rebalance_timeout_ms=config.rebalance_timeout_ms if everything else -1,
            topics=words.topics,
            topic_regex=words.topic_regex,
            server_assignor=config.group_remote_assignor if everything else None,
            owned=None if owned is None else {one: sorted(of) for one, of in owned.items()},
        )

    async def _answer(self, connection: BrokerConnection, message: Request) -> dict[str, Any]:
        response = await connection.request(message, timeout=self._talk.patience)
        answer: dict[str, Any] = response.to_object()
        if code := answer["error_code"]:
            said = answer["error_message"] or "a heartbeat was refused"
            raise BrokerError.of(code, f"group {self._config.group_id!r}: {said.rstrip('.')}")
        return answer

    def _react(self, error: ConsumerError) -> None:
        """Prepare for the next attempt after an error, or raise it if it is fatal."""
        talk, what = self._talk, reaction(error)
        if what is HeartbeatReaction.UNSUPPORTED:
            raise ConsumerProtocolUnsupported(self._config.group_id, str(error)) from error
        had_something = talk.phase is Phase.MEMBER
        if what is HeartbeatReaction.END or (
            what is HeartbeatReaction.REJOIN_OR_END and not had_something
        ):
            raise error
        talk.repeat_everything()
        if what is not HeartbeatReaction.RETRY and had_something:
            talk.lost()
            self._heartbeat = None
            self._news.set()
