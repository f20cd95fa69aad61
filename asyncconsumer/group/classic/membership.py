"""Membership in a classic group: JoinGroup, SyncGroup and heartbeats.

Members send their subscriptions, the leader computes the assignment, and the coordinator
distributes it. In the eager protocol every member revokes all partitions before it rejoins. In the
cooperative protocol (KIP-429) a member revokes only partitions that the new generation assigns to
others. Another generation then assigns those to their new owners.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Final, Self

from aiokafka.protocol.api import Request

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.errors import ConsumerError, IllegalGeneration
from asyncconsumer.group.assignors import Assignor
from asyncconsumer.group.classic.attempt import JoinAttempt, RejoinPacing, RejoinSignal
from asyncconsumer.group.classic.config import ClassicGroupConfig
from asyncconsumer.group.classic.coordinator_client import CoordinatorClient
from asyncconsumer.group.classic.heartbeats import HeartbeatResult, Heartbeats
from asyncconsumer.group.classic.leader import GroupLeader, JoinResult, readable, shares
from asyncconsumer.group.classic.member import MemberEvent, MemberState, MemberStateMachine
from asyncconsumer.group.classic.reactions import GroupRequest, Reaction, reaction
from asyncconsumer.group.classic.subscribed_topics import SubscribedTopics
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.subscription import Subscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.protocol.classic_group import JoinGroupRequest, SyncGroupRequest
from asyncconsumer.protocol.subscription_codec import NO_GENERATION, PROTOCOL_TYPE
from asyncconsumer.types import Address, MemberIdentity, TopicPartition

_log: Final = logging.getLogger(__name__)
_MORE_THAN_A_REBALANCE: Final = 5.0  # seconds on top of the rebalance timeout
_SECONDS_TO_LEAVE: Final = 5.0


class ClassicMembership:
    """A member of a classic group that sends heartbeats within its ``async with`` block."""

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: Cluster,
        config: ClassicGroupConfig,
        subscription: Subscription,
        assignors: Sequence[Assignor],
        *,
        randomness: Random,
        suspensions: Suspensions | None = None,
    ) -> None:
        suspensions = suspensions or Suspensions()
        self.rebalances = 0  # generations that this member has synced
        self._config = config
        self._topics = SubscribedTopics(
            cluster,
            subscription,
            exclude_internal=config.exclude_internal_topics,
            looks_every=config.metadata_refresh_ms / 1000,
            racks_matter=bool(config.client_rack),
        )
        self._assigning = GroupLeader(assignors, config.client_rack)
        self._heartbeats = Heartbeats(
            coordinator,
            session_ms=config.session_timeout_ms,
            rebalance_ms=config.rebalance_timeout_ms,
            interval_ms=config.heartbeat_interval_ms,
            randomness=randomness,
            suspensions=suspensions,
        )
        self._member = MemberStateMachine()
        self._owned: frozenset[TopicPartition] = frozenset()
        self._bell = RejoinSignal()
        self._attempt = JoinAttempt(randomness)
        self._pacing = RejoinPacing(randomness)
        self._asking = CoordinatorClient(coordinator, self._attempt, suspensions)
        self._scope = Scope("membership")

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._scope.start(self._listen(), "heartbeats")
        self._scope.start(self._watch(), "watch topics")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await self._scope.__aexit__(kind, error, where)
        self._heartbeats.end()

    # --- state -----------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether this member owns nothing: it has not joined, or it lost or left its group."""
        return self._member.state in (MemberState.OUTSIDE, MemberState.GONE)

    @property
    def awaiting_assignment(self) -> bool:
        """Whether the assignment of the next generation is pending.

        A cooperative member may own partitions meanwhile.
        """
        return self._member.state is not MemberState.STABLE

    @property
    def is_current(self) -> bool:
        """Whether the assignment is that of a generation with the current subscription."""
        return self._member.state is MemberState.STABLE and not self._bell.rung.is_set()

    @property
    def settles_after(self) -> float:
        """Seconds after which an empty assignment is final.

        It is 0 for eager members, because others revoke before the assignment.
        """
        interval = self._config.heartbeat_interval_ms / 1000
        return 3 * interval if self._assigning.cooperative else 0.0

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics, as of the last metadata or JoinGroup request."""
        return self._topics.last_names

    @property
    def deadline(self) -> float:
        """The loop time until which the coordinator certainly keeps this member."""
        return self._heartbeats.deadline

    @property
    def last_heartbeat(self) -> float:
        """The send time of the last successful heartbeat."""
        return self._heartbeats.last_heartbeat

    @property
    def identity(self) -> MemberIdentity | None:
        """The member id and generation to commit with; None outside a generation."""
        return self._heartbeats.identity

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """The heartbeat and its address, which any thread may send while the loop is blocked."""
        return self._heartbeats.heartbeat

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Record that another thread sent `heartbeat` at this loop time and received no error."""
        self._heartbeats.heartbeat_from_thread(sent_at)

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription and rejoin if it differs."""
        if subscription != self._topics.subscription:
            self._topics.want(subscription)
            self.rejoin("the subscription changed")

    def rejoin(self, reason: str) -> None:
        """Request a rebalance."""
        self._bell.ring(reason)

    # --- assignments -----------------------------------------------------------------------------

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assignments of this member until it leaves."""
        steps = {
            MemberState.OUTSIDE: self._begin,
            MemberState.JOINING: self._take_part,
            MemberState.STABLE: self._wait,
            MemberState.REVOKING: self._release,
        }
        while self._member.state is not MemberState.GONE:
            self._bell.check()
            assignment = await steps[self._member.state]()
            if assignment is not None:
                yield assignment

    def rebalance_pending(self) -> bool:
        """Return whether a rejoin is requested, which brings another assignment."""
        return self._bell.rung.is_set()

    async def _begin(self) -> Assignment | None:
        """Report owned partitions as lost; if there are none, begin to join."""
        if self._owned:
            lost, self._owned = self._owned, frozenset()
            self._pacing.log.warning("%s lost its place: %d partitions", self._who, len(lost))
            return Assignment(lost=lost)
        self._member.on(MemberEvent.JOIN)
        return None

    async def _wait(self) -> Assignment | None:
        """Wait until a rejoin is requested."""
        await self._bell.rung.wait()
        if self._member.state is MemberState.STABLE:
            self._member.on(MemberEvent.REBALANCE)
        return None

    async def _release(self) -> Assignment | None:
        """Revoke partitions before rejoining: all of them in the eager protocol.

        In the cooperative protocol only partitions of unsubscribed topics are revoked.
        """
        cooperative, takes = self._assigning.cooperative, self._topics.takes
        keep = frozenset(one for one in self._owned if cooperative and takes(one.topic))
        if keep == self._owned:  # the revocation is complete
            self._member.on(MemberEvent.RELEASED)
            return None
        self._owned = keep
        return self._assignment(dict.fromkeys(keep, self._asking.member_id))

    async def _take_part(self) -> Assignment | None:
        """Join and sync, and return the assignment; None if that fails or is cancelled."""
        async with self._attempt.made():
            try:
                await self._pacing.pause(self._config.heartbeat_interval_ms / 1000)
                joined = await self._join()
                if joined is not None and (owners := await self._sync(joined)) is not None:
                    return self._assignment(owners)
            except ConsumerError as error:
                await self._react(error)
        if self._member.state is MemberState.SYNCING:
            self._member.on(MemberEvent.REBALANCE)
        return None

    def _assignment(self, owners: Mapping[TopicPartition, str]) -> Assignment:
        ours = sorted(self._owned)  # for a deterministic order
        return Assignment(dict.fromkeys(ours, 0), fresh=self._topics.fresh(ours), owners=owners)

    # --- one generation --------------------------------------------------------------------------

    async def _join(self) -> JoinResult | None:
        """Send JoinGroup; return None if the member was lost or left before the response."""
        reason, config = self._bell.answered(), self._config
        topics = await self._topics.names()
        who = self._heartbeats.identity
        generation = NO_GENERATION if who is None else who.generation
        request = JoinGroupRequest(
            config.group_id,
            self._assigning.subscriptions(topics, self._owned, generation),
            protocol_type=PROTOCOL_TYPE,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            member_id=self._asking.member_id,
            group_instance_id=config.group_instance_id,
            reason=reason,
        )
        with self._heartbeats.joining():
            answer = await self._asking.join(request, timeout=self._long)
        if self._member.state is not MemberState.JOINING:
            return None
        joined = JoinResult.of(answer.values, config.group_instance_id, answer.address)
        self._asking.be(joined.identity.member_id)
        self._heartbeats.begin(joined.identity, answer.sent_at, answer.address)
        self._pacing.began()
        self._member.on(MemberEvent.JOINED)
        return joined

    async def _sync(self, joined: JoinResult) -> Mapping[TopicPartition, str] | None:
        """Send SyncGroup, with the group's assignment if leading, and return the known owners."""
        who, division = joined.identity, await self._divide(joined)
        request = SyncGroupRequest(
            self._config.group_id,
            who.generation,
            who.member_id,
            group_instance_id=who.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol=joined.protocol,
            assignments=shares(joined.members, division) if joined.decides else {},
        )
        answer = await self._asking.sync(request, joined.address, timeout=self._long)
        if self._member.state is not MemberState.SYNCING:
            return None
        told = answer.values["assignment"]
        given = self._assigning.assigned(joined.protocol, told, who.generation)
        self._heartbeats.proven(answer.sent_at)
        self._member.on(MemberEvent.ASSIGNED)
        self._asking.last()
        self._attempt.succeeded()
        self.rebalances += 1
        before, self._owned = self._owned, frozenset(given)
        if before - self._owned:  # the next generation assigns them to others
            self._bell.ring("gave up partitions for others")
        elif self._assigning.cooperative:  # others may be revoking partitions for this member
            self._heartbeats.hurry()
        if not joined.decides:
            if joined.leads and set(division.get(who.member_id, ())) != self._owned:
                self._bell.ring("partitions came while the leader was away")
            division = {}
        owners = {one: member for member, has in division.items() for one in has}
        return owners | dict.fromkeys(given, who.member_id)

    async def _divide(self, joined: JoinResult) -> Mapping[str, Collection[TopicPartition]]:
        """Return the group's assignment if this member leads, otherwise an empty one.

        For a leader that need not decide, it only shows whether a rebalance is needed.
        """
        if not joined.leads:
            self._topics.follow()
            return {}
        wanting = readable(joined.members)
        topics = {topic for one in wanting.values() for topic in one.topics}
        partitions = await self._topics.divide(sorted(topics))
        return self._assigning.divide(joined.protocol, wanting, partitions, self._topics.racks)

    async def _react(self, error: ConsumerError) -> None:
        """Handle an error of JoinGroup or SyncGroup."""
        if self._member.state not in (MemberState.JOINING, MemberState.SYNCING):
            return
        ask = GroupRequest.SYNC if self._member.state is MemberState.SYNCING else GroupRequest.JOIN
        what = self._asking.resolve_fencing(reaction(ask, error))
        if what is Reaction.REJOIN_WITH_ID:
            return
        self._pacing.log.info("%s: %s; %s", self._who, error, what.value)
        if what in (Reaction.FENCED, Reaction.FATAL):
            self._lose()
            raise error
        if what is Reaction.REJOIN:
            return
        if what in (Reaction.REJOIN_EMPTY, Reaction.REJOIN_AS_NEW):
            self._lose(known=what is Reaction.REJOIN_EMPTY)
        await self._attempt.pause()

    @property
    def _long(self) -> float:
        """The timeout in seconds of requests whose response waits for other members."""
        return self._config.rebalance_timeout_ms / 1000 + _MORE_THAN_A_REBALANCE

    @property
    def _who(self) -> str:
        name = self._config.group_instance_id or self._asking.member_id or "a new member"
        return f"{name} of group {self._config.group_id!r}"

    # --- in the background -----------------------------------------------------------------------

    async def _listen(self) -> None:
        async for news in self._heartbeats.news():
            self._hear(news)

    def _hear(self, news: HeartbeatResult) -> None:
        """Handle the result of a heartbeat."""
        joining = self._member.state is MemberState.JOINING
        match what := self._asking.resolve_fencing(news.reaction):
            case Reaction.FIND_COORDINATOR:
                self._attempt.break_off()  # it waits for a broker that is no longer the coordinator
            case Reaction.REJOIN if joining:
                pass  # already rejoining
            case Reaction.REJOIN:
                self._bell.ring("the group rebalances")
            case Reaction.REJOIN_EMPTY if joining and isinstance(news.error, IllegalGeneration):
                pass  # the JoinGroup response shows whether this member is in the new one
            case Reaction.REJOIN_EMPTY | Reaction.REJOIN_AS_NEW:
                self._pacing.log.warning("%s: %s; %s", self._who, news.error, what.value)
                self._lose(known=what is Reaction.REJOIN_EMPTY)
                self._attempt.break_off()
                self._bell.ring("lost everything")
            case _:
                assert news.error is not None
                self._lose()
                self._attempt.break_off()
                self._bell.fail(news.error)

    def _lose(self, *, known: bool = True) -> None:
        """Mark everything as lost. The next assignment reports it."""
        self._member.on(MemberEvent.LOST)
        self._heartbeats.end()
        self._topics.follow()
        if not known:
            self._asking.reset_member_id()

    async def _watch(self) -> None:
        """Periodically check for topic changes or, outside a generation, a moved coordinator."""
        quiet = RateLimitedLogger(_log)
        while True:
            await asyncio.sleep(self._config.metadata_refresh_ms / 1000)
            try:
                if self._member.state is MemberState.STABLE:
                    await self._look_at_topics()
                elif self._heartbeats.identity is None and await self._asking.elsewhere():
                    self._attempt.break_off()  # no heartbeats run now that would detect it
            except ConsumerError as error:
                quiet.warning("%s has no news: %s", self._who, error)

    async def _look_at_topics(self) -> None:
        """Rejoin if topics or partitions changed, because the coordinator does not watch them."""
        generation, reason = self._heartbeats.identity, await self._topics.changed()
        if reason is not None and generation == self._heartbeats.identity:
            self.rejoin(reason)

    async def leave(self, reason: str = "the consumer is being closed") -> None:
        """Leave the group; may be called twice. Static members send no LeaveGroup."""
        who = self._who
        self._member.on(MemberEvent.LEAVE)
        self._heartbeats.end()
        self._owned = frozenset()
        self._attempt.break_off()
        self._bell.ring(reason)
        if self._config.group_instance_id is not None:
            return
        try:
            async with asyncio.timeout(_SECONDS_TO_LEAVE):
                await self._asking.leave(reason)
        except (TimeoutError, ConsumerError) as error:
            _log.warning("%s is gone without a word: %r", who, error)
