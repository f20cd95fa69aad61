"""Membership in a classic group: JoinGroup, SyncGroup and heartbeats.

Members send their subscriptions, the leader computes the assignment, and the coordinator
distributes it. In the eager protocol every member revokes all partitions before it rejoins. In the
cooperative protocol (KIP-429) a member revokes only partitions that the new generation assigns to
others. Another generation then assigns those to their new owners.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.aiokafka_parts import Request
from asyncconsumer.errors import ConsumerError, IllegalGeneration
from asyncconsumer.group.assignors import Assignor
from asyncconsumer.group.classic.attempt import JoinAttempt, RejoinPacing, RejoinSignal
from asyncconsumer.group.classic.config import ClassicGroupConfig
from asyncconsumer.group.classic.coordinator_client import CoordinatorClient
from asyncconsumer.group.classic.heartbeats import HeartbeatResult, Heartbeats
from asyncconsumer.group.classic.leader import (
    GroupLeader,
    JoinResult,
    decode_in_thread_if_large,
    encode_assignments,
)
from asyncconsumer.group.classic.leader_return import LeaderReturn
from asyncconsumer.group.classic.member import MemberEvent, MemberState, MemberStateMachine
from asyncconsumer.group.classic.reactions import GroupRequest, Reaction, reaction_to
from asyncconsumer.group.classic.subscribed_topics import SubscribedTopics
from asyncconsumer.group.classic.unassigned import UnassignedCheck
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.subscription import Subscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.protocol.classic_group import JoinGroupRequest, SyncGroupRequest
from asyncconsumer.protocol.subscription_codec import NO_GENERATION, PROTOCOL_TYPE
from asyncconsumer.types import Address, MemberIdentity, TopicPartition

_log: Final = logging.getLogger(__name__)
_EXTRA_SECONDS: Final = 5.0  # seconds on top of the rebalance timeout
_SECONDS_TO_LEAVE: Final = 5.0


class ClassicMembership(AsyncResource):
    """A member of a classic group. It sends heartbeats within its ``async with`` block."""

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
            refresh_seconds=config.metadata_refresh_ms / 1000,
            racks_matter=bool(config.client_rack),
        )
        self._leader = GroupLeader(assignors, config.client_rack)
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
        self._rejoin = RejoinSignal()
        self._attempt = JoinAttempt(randomness)
        self._pacing = RejoinPacing(randomness)
        self._client = CoordinatorClient(coordinator, self._attempt, suspensions)
        self._leader_return = LeaderReturn(self._client, self._topics)
        self._unassigned = UnassignedCheck(self._client, self._topics, config.rebalance_timeout_ms)
        self._scope = Scope("membership")

    async def _open(self, stack: AsyncExitStack) -> None:
        self._scope.check_new()
        stack.callback(self._heartbeats.end)
        await stack.enter_async_context(self._scope)
        self._scope.start(self._run_heartbeats(), "heartbeats")
        self._scope.start(self._watch(), "watch topics")

    # --- state -----------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether this member owns nothing: it has not joined, or lost or left its group."""
        return self._member.state in (MemberState.OUTSIDE, MemberState.GONE)

    @property
    def awaiting_assignment(self) -> bool:
        """Whether this member waits for the assignment of the next generation.

        In the cooperative protocol, it may own partitions meanwhile.
        """
        return self._member.state is not MemberState.STABLE

    @property
    def is_current(self) -> bool:
        """Whether this member has an assignment, and no rebalance was requested since.

        A change of the subscription requests a rebalance.
        """
        return self._member.state is MemberState.STABLE and not self._rejoin.requested.is_set()

    @property
    def settles_after(self) -> float:
        """The seconds for which an empty assignment must last until it counts as final.

        In the cooperative protocol, partitions follow when other members have revoked them. In the
        eager protocol the value is 0, because members revoke all partitions before they rejoin.
        """
        interval = self._config.heartbeat_interval_ms / 1000
        return 3 * interval if self._leader.cooperative else 0.0

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics, as of the last metadata or JoinGroup request."""
        return self._topics.last_names

    @property
    def deadline(self) -> float:
        """The loop time until which the coordinator certainly keeps this member in the group."""
        return self._heartbeats.deadline

    @property
    def last_heartbeat(self) -> float:
        """The loop time at which the last successful heartbeat was sent."""
        return self._heartbeats.last_heartbeat

    @property
    def identity(self) -> MemberIdentity | None:
        """The member id and generation for commits, or None if this member has no generation."""
        return self._heartbeats.identity

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """The coordinator's address and the heartbeat request to send to it.

        The value is None while this member is in no generation. Another thread sends the request
        while the event loop is blocked.
        """
        return self._heartbeats.heartbeat

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Record that another thread sent `heartbeat` successfully at the loop time `sent_at`."""
        self._heartbeats.heartbeat_from_thread(sent_at)

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription. Rejoin if the new one differs."""
        if subscription != self._topics.subscription:
            self._topics.subscribe(subscription)
            self.rejoin("the subscription changed")

    def suspend(self, reason: str) -> None:
        """Release all partitions, and get none until `unsuspend` or `subscribe`.

        The member stays in its group, without a topic.
        """
        self._topics.suspended = True
        self.rejoin(reason)

    def unsuspend(self) -> None:
        """End the suspension, if there is one, so that this member gets partitions again."""
        if self._topics.suspended:
            self._topics.suspended = False
            self.rejoin("the suspension ended")

    @property
    def suspended(self) -> bool:
        """Whether this member is suspended."""
        return self._topics.suspended

    def rejoin(self, reason: str) -> None:
        """Request a rebalance of the group."""
        self._rejoin.request(reason)

    # --- assignments -----------------------------------------------------------------------------

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assignments of this member until it leaves."""
        steps = {
            MemberState.OUTSIDE: self._begin,
            MemberState.JOINING: self._join_generation,
            MemberState.STABLE: self._wait,
            MemberState.REVOKING: self._release,
        }
        while self._member.state is not MemberState.GONE:
            self._rejoin.check()
            assignment = await steps[self._member.state]()
            if assignment is not None:
                yield assignment

    def rebalance_pending(self) -> bool:
        """Return whether this member is about to rejoin, so that a newer assignment is due."""
        return self._rejoin.requested.is_set()

    async def _begin(self) -> Assignment | None:
        """Begin to join, after the partitions of an ended membership were reported as lost.

        If this member still has such partitions, return an assignment that reports them. The next
        call then begins to join, and returns None.
        """
        if self._owned:
            lost, self._owned = self._owned, frozenset()
            self._pacing.log.warning(
                "%s is no longer in its group; it lost %d partitions", self._label, len(lost)
            )
            return Assignment(lost=lost)
        self._member.on(MemberEvent.JOIN)
        return None

    async def _wait(self) -> Assignment | None:
        """Wait until a rejoin is requested, then start it.

        Return None, because nothing is assigned yet.
        """
        await self._rejoin.requested.wait()
        if self._member.state is MemberState.STABLE:
            self._member.on(MemberEvent.REBALANCE)
        return None

    async def _release(self) -> Assignment | None:
        """Return an assignment that revokes partitions before this member rejoins.

        The eager protocol revokes all partitions. The cooperative protocol revokes only partitions
        of topics that are no longer subscribed. Return None if there is nothing to revoke.
        """
        cooperative, includes = self._leader.cooperative, self._topics.includes
        keep = frozenset(tp for tp in self._owned if cooperative and includes(tp.topic))
        if keep == self._owned:  # the revocation is complete
            self._member.on(MemberEvent.RELEASED)
            return None
        self._owned = keep
        return self._assignment(dict.fromkeys(keep, self._client.member_id))

    async def _join_generation(self) -> Assignment | None:
        """Join a generation and return its assignment.

        Return None if the attempt fails or is cancelled.
        """
        sent_id = self._client.member_id
        async with self._attempt.run():
            try:
                await self._pacing.pause(self._config.heartbeat_interval_ms / 1000)
                joined = await self._join()
                if joined is not None and (owners := await self._sync(joined)) is not None:
                    return self._assignment(owners)
            except ConsumerError as error:
                await self._react(error, sent_id)
        if self._member.state is MemberState.SYNCING:
            self._member.on(MemberEvent.REBALANCE)
        return None

    def _assignment(self, owners: Mapping[TopicPartition, str]) -> Assignment:
        owned = sorted(self._owned)  # for a deterministic order
        return Assignment(dict.fromkeys(owned, 0), fresh=self._topics.fresh(owned), owners=owners)

    # --- one generation --------------------------------------------------------------------------

    async def _join(self) -> JoinResult | None:
        """Send JoinGroup and return its result.

        Return None if this member lost its membership or left the group before the response.
        """
        reason, config = self._rejoin.clear(), self._config
        topics = await self._topics.names()
        identity = self._heartbeats.identity
        generation = NO_GENERATION if identity is None else identity.generation
        member_id = self._client.member_id
        request = JoinGroupRequest(
            config.group_id,
            self._leader.subscriptions(topics, self._owned, generation),
            protocol_type=PROTOCOL_TYPE,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=config.group_instance_id,
            reason=reason,
        )
        with self._heartbeats.joining():
            answer = await self._client.join(request, timeout=self._join_timeout)
        if self._member.state is not MemberState.JOINING:
            return None
        joined = JoinResult.of(
            answer.values, config.group_instance_id, answer.address, as_new=not member_id
        )
        self._client.set_member_id(joined.identity.member_id)
        self._heartbeats.begin(joined.identity, answer.sent_at, answer.address)
        self._pacing.on_generation()
        self._member.on(MemberEvent.JOINED)
        return joined

    async def _sync(self, joined: JoinResult) -> Mapping[TopicPartition, str] | None:
        """Send SyncGroup, and return the member id of the owner of each partition.

        If this member computes the assignment, the request contains it, and the result has all
        partitions. Otherwise the result has only the partitions of this member. Return None if this
        member lost its membership or left the group before the response.
        """
        identity, assignments = joined.identity, await self._compute_assignment(joined)
        request = SyncGroupRequest(
            self._config.group_id,
            identity.generation,
            identity.member_id,
            group_instance_id=identity.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol=joined.protocol,
            assignments=encode_assignments(joined.members, assignments) if joined.decides else {},
        )
        answer = await self._client.sync(request, joined.address, timeout=self._join_timeout)
        if self._member.state is not MemberState.SYNCING:
            return None
        encoded = answer.values["assignment"]
        assigned = self._leader.assigned(joined.protocol, encoded, identity.generation)
        self._heartbeats.confirm(answer.sent_at)
        self._member.on(MemberEvent.ASSIGNED)
        self._client.confirm_member_id()
        self._attempt.succeeded()
        self.rebalances += 1
        before, self._owned = self._owned, frozenset(assigned)
        if joined.as_new:  # a static member that returns gets the topics of its last process
            self._owned = frozenset(tp for tp in assigned if self._topics.includes(tp.topic))
        if len(self._owned) < len(assigned):
            self._rejoin.request("assigned topics are not subscribed")
        elif before - self._owned:  # the next generation assigns them to others
            self._rejoin.request("partitions were revoked for other members")
        elif self._leader.cooperative:  # others may be revoking partitions for this member
            self._heartbeats.hurry()
        self._leader_return.on_generation(joined)
        self._unassigned.on_generation(joined, assignments)
        owners = {tp: member for member, tps in assignments.items() for tp in tps}
        return owners | dict.fromkeys(self._owned, identity.member_id)

    async def _compute_assignment(
        self, joined: JoinResult
    ) -> Mapping[str, Collection[TopicPartition]]:
        """Return the group's assignment if this member must compute it, otherwise an empty mapping.

        A static leader that returned need not compute it (`skip_assignment`). It reads the
        partition counts only to notice later changes.
        """
        if not joined.leads:
            self._topics.follow()
            return {}
        subscriptions = await decode_in_thread_if_large(joined.members)
        topics = {topic for member in subscriptions.values() for topic in member.topics}
        partitions = await self._topics.partition_counts(sorted(topics))
        if not joined.decides:
            return {}
        return self._leader.assign(joined.protocol, subscriptions, partitions, self._topics.racks)

    async def _react(self, error: ConsumerError, sent_id: str) -> None:
        """Handle an error of JoinGroup or SyncGroup. `sent_id` is the member id in JoinGroup."""
        if self._member.state not in (MemberState.JOINING, MemberState.SYNCING):
            return
        syncing = self._member.state is MemberState.SYNCING
        request = GroupRequest.SYNC if syncing else GroupRequest.JOIN
        reaction = self._client.resolve_fencing(reaction_to(request, error))
        if reaction is Reaction.REJOIN_WITH_ID and not sent_id and self._client.member_id:
            # rejoin at once only if no id was sent: a coordinator may require an id each time
            return
        self._pacing.log.info("%s: %s; %s", self._label, error, reaction.value)
        if reaction in (Reaction.FENCED, Reaction.FATAL):
            self._mark_lost()
            raise error
        if reaction is Reaction.REJOIN:
            return
        if reaction in (Reaction.REJOIN_EMPTY, Reaction.REJOIN_AS_NEW):
            self._mark_lost(known=reaction is Reaction.REJOIN_EMPTY)
        await self._attempt.pause()

    @property
    def _join_timeout(self) -> float:
        """The request timeout in seconds for requests whose response waits for other members."""
        return self._config.rebalance_timeout_ms / 1000 + _EXTRA_SECONDS

    @property
    def _label(self) -> str:
        name = self._config.group_instance_id or self._client.member_id or "a new member"
        return f"{name} of group {self._config.group_id!r}"

    # --- in the background -----------------------------------------------------------------------

    async def _run_heartbeats(self) -> None:
        async for result in self._heartbeats.results():
            self._on_heartbeat_result(result)

    def _on_heartbeat_result(self, result: HeartbeatResult) -> None:
        joining = self._member.state is MemberState.JOINING
        match reaction := self._client.resolve_fencing(result.reaction):
            case Reaction.FIND_COORDINATOR:
                # a join request waits for a broker that is no longer the coordinator
                self._attempt.cancel()
            case Reaction.REJOIN if joining:
                pass  # already rejoining
            case Reaction.REJOIN:
                self._rejoin.request("the group is rebalancing")
            case Reaction.REJOIN_EMPTY if joining and isinstance(result.error, IllegalGeneration):
                pass  # the JoinGroup response shows whether this member is in the new generation
            case Reaction.REJOIN_EMPTY | Reaction.REJOIN_AS_NEW:
                self._pacing.log.warning("%s: %s; %s", self._label, result.error, reaction.value)
                self._mark_lost(known=reaction is Reaction.REJOIN_EMPTY)
                self._attempt.cancel()
                self._rejoin.request("all partitions were lost")
            case _:
                assert result.error is not None
                self._mark_lost()
                self._attempt.cancel()
                self._rejoin.fail(result.error)

    def _mark_lost(self, *, known: bool = True) -> None:
        """Mark all partitions as lost. The next assignment reports them.

        With ``known=False`` the coordinator no longer knows the member id, so it is reset.
        """
        self._member.on(MemberEvent.LOST)
        self._heartbeats.end()
        self._topics.follow()
        if not known:
            self._client.reset_member_id()

    async def _watch(self) -> None:
        """Check periodically whether topics have changed.

        While this member is in no generation, check whether the coordinator has changed.
        """
        log = RateLimitedLogger(_log)
        while True:
            await self._leader_return.wait(self._config.metadata_refresh_ms / 1000)
            try:
                if self._member.state is MemberState.STABLE:
                    await self._check_topics()
                elif self._heartbeats.identity is None and await self._client.has_moved():
                    self._attempt.cancel()  # no heartbeats run now that would detect it
            except ConsumerError as error:
                log.warning("%s cannot refresh topic metadata: %s", self._label, error)

    async def _check_topics(self) -> None:
        """Rejoin if the group's topics or partitions have changed.

        The leader must check this, because the coordinator of a classic group does not.
        """
        generation = self._heartbeats.identity
        await self._leader_return.resume()
        reason = await self._topics.changed() or await self._unassigned.reason()
        if reason is not None and generation == self._heartbeats.identity:
            self.rejoin(reason)

    async def leave(self, reason: str = "the consumer is being closed") -> None:
        """Leave the group, within a few seconds. A second call has no effect.

        A static member sends no LeaveGroup, so that it can return within the session timeout.
        """
        label = self._label
        self._member.on(MemberEvent.LEAVE)
        self._heartbeats.end()
        self._owned = frozenset()
        self._attempt.cancel()
        self._rejoin.request(reason)
        if self._config.group_instance_id is not None:
            return
        try:
            async with asyncio.timeout(_SECONDS_TO_LEAVE):
                await self._client.leave(reason)
        except (TimeoutError, ConsumerError) as error:
            _log.warning(
                "failed to send LeaveGroup for %s; the group waits for its session timeout: %r",
                *(label, error),
            )
