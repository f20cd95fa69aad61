"""A member of a group that Kafka coordinates, by the classic protocol: join, sync, heartbeats.

Members send what they want, one of them, the leader, divides, and the coordinator passes it on. By
the eager protocol everybody gives up everything before a generation ends; by the cooperative one
(KIP-429) a member gives up only what the next generation takes from it, and then there is another.
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
_MORE_THAN_A_REBALANCE: Final = 5.0  # seconds until whoever rebalances must have answered
_SECONDS_TO_LEAVE: Final = 5.0


class ClassicMembership:
    """One member, within its ``async with`` block: heartbeats are sent in the background."""

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
        self.rebalances = 0  # generations that we have been in
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

    # --- how it stands ---------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether nothing is ours: not yet, not any more."""
        return self._member.state in (MemberState.OUTSIDE, MemberState.GONE)

    @property
    def awaiting_assignment(self) -> bool:
        """Whether the next generation is to say what is ours; a cooperative member has some."""
        return self._member.state is not MemberState.STABLE

    @property
    def is_current(self) -> bool:
        """Whether our share is that of a generation which knows our subscription."""
        return self._member.state is MemberState.STABLE and not self._bell.rung.is_set()

    @property
    def settles_after(self) -> float:
        """Seconds after which an empty share is final; members of an eager group release before."""
        interval = self._config.heartbeat_interval_ms / 1000
        return 3 * interval if self._assigning.cooperative else 0.0

    @property
    def topics(self) -> frozenset[str]:
        """The topics of our subscription, as they were last sent to the group."""
        return self._topics.last_names

    @property
    def deadline(self) -> float:
        """As long as the coordinator certainly goes on with us."""
        return self._heartbeats.deadline

    @property
    def last_heartbeat(self) -> float:
        """When the coordinator last heard of us."""
        return self._heartbeats.last_heartbeat

    @property
    def identity(self) -> MemberIdentity | None:
        """As whom to commit; None when nothing is ours."""
        return self._heartbeats.identity

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """What others may send for us while we cannot; may be read by any thread."""
        return self._heartbeats.heartbeat

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """What `heartbeat` says was sent at that moment by the loop's clock, and answered well."""
        self._heartbeats.heartbeat_from_thread(sent_at)

    def subscribe(self, subscription: Subscription) -> None:
        """Want something else from now on."""
        if subscription != self._topics.subscription:
            self._topics.want(subscription)
            self.rejoin("the subscription changed")

    def rejoin(self, reason: str) -> None:
        """Have the group divide anew."""
        self._bell.ring(reason)

    # --- assignments -----------------------------------------------------------------------------

    async def assignments(self) -> AsyncIterator[Assignment]:
        """What is ours, again and again, until we leave."""
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
        """Whether there is to be another generation: it has its own assignment."""
        return self._bell.rung.is_set()

    async def _begin(self) -> Assignment | None:
        """If there is something that we had, it is lost; otherwise join."""
        if self._owned:
            lost, self._owned = self._owned, frozenset()
            self._pacing.log.warning("%s lost its place: %d partitions", self._who, len(lost))
            return Assignment(lost=lost)
        self._member.on(MemberEvent.JOIN)
        return None

    async def _wait(self) -> Assignment | None:
        """Until there is to be another generation."""
        await self._bell.rung.wait()
        if self._member.state is MemberState.STABLE:
            self._member.on(MemberEvent.REBALANCE)
        return None

    async def _release(self) -> Assignment | None:
        """What the next generation may give to others is let go of: all of it.

        By the cooperative protocol it is only what we do not want any more.
        """
        cooperative, takes = self._assigning.cooperative, self._topics.takes
        keep = frozenset(one for one in self._owned if cooperative and takes(one.topic))
        if keep == self._owned:  # the receipt for what was let go of is here
            self._member.on(MemberEvent.RELEASED)
            return None
        self._owned = keep
        return self._assignment(dict.fromkeys(keep, self._asking.member_id))

    async def _take_part(self) -> Assignment | None:
        """Join, and learn our share, unless something comes between."""
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
        ours = sorted(self._owned)  # in an order that is the same in each run
        return Assignment(dict.fromkeys(ours, 0), fresh=self._topics.fresh(ours), owners=owners)

    # --- one generation --------------------------------------------------------------------------

    async def _join(self) -> JoinResult | None:
        """Be in the next generation; None if we are out of it before the answer is here."""
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
        """Learn our share, and as the leader give everyone's; who reads what, as far as we know."""
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
        if before - self._owned:  # once they are let go of, others can have them
            self._bell.ring("gave up partitions for others")
        elif self._assigning.cooperative:  # others may be giving something up for us
            self._heartbeats.hurry()
        if not joined.decides:
            if joined.leads and set(division.get(who.member_id, ())) != self._owned:
                self._bell.ring("partitions came while the leader was away")
            division = {}
        owners = {one: member for member, has in division.items() for one in has}
        return owners | dict.fromkeys(given, who.member_id)

    async def _divide(self, joined: JoinResult) -> Mapping[str, Collection[TopicPartition]]:
        """If we lead, who should read what; that is decided already if we only came back."""
        if not joined.leads:
            self._topics.follow()
            return {}
        wanting = readable(joined.members)
        topics = {topic for one in wanting.values() for topic in one.topics}
        partitions = await self._topics.divide(sorted(topics))
        return self._assigning.divide(joined.protocol, wanting, partitions, self._topics.racks)

    async def _react(self, error: ConsumerError) -> None:
        """Joining or syncing was refused."""
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
        """Seconds in which a coordinator that waits for other members must have answered."""
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
        """What a heartbeat found out."""
        joining = self._member.state is MemberState.JOINING
        match what := self._asking.resolve_fencing(news.reaction):
            case Reaction.FIND_COORDINATOR:
                self._attempt.break_off()  # whom we wait for is not the coordinator any more
            case Reaction.REJOIN if joining:
                pass  # that is what we do
            case Reaction.REJOIN:
                self._bell.ring("the group rebalances")
            case Reaction.REJOIN_EMPTY if joining and isinstance(news.error, IllegalGeneration):
                pass  # there is another generation already: we will be told whether we are in it
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
        """Nothing is ours any more, from this moment on; the assignments will tell."""
        self._member.on(MemberEvent.LOST)
        self._heartbeats.end()
        self._topics.follow()
        if not known:
            self._asking.reset_member_id()

    async def _watch(self) -> None:
        """Look around every few seconds."""
        quiet = RateLimitedLogger(_log)
        while True:
            await asyncio.sleep(self._config.metadata_refresh_ms / 1000)
            try:
                if self._member.state is MemberState.STABLE:
                    await self._look_at_topics()
                elif self._heartbeats.identity is None and await self._asking.elsewhere():
                    self._attempt.break_off()  # no heartbeat would tell that nobody will answer us
            except ConsumerError as error:
                quiet.warning("%s has no news: %s", self._who, error)

    async def _look_at_topics(self) -> None:
        """For new ones and new partitions: nobody tells the group of them."""
        generation, reason = self._heartbeats.identity, await self._topics.changed()
        if reason is not None and generation == self._heartbeats.identity:
            self.rejoin(reason)

    async def leave(self, reason: str = "the consumer is being closed") -> None:
        """Give up our place, unless it is kept for us as a static member. Harmless when done."""
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
