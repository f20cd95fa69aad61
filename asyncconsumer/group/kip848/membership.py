"""Membership in a KIP-848 group, in which the coordinator computes the assignment.

A heartbeat response may contain a new target assignment. Partitions that are not in it any more are
revoked first. The coordinator assigns them to another member only after this member has confirmed
the revocation. Partitions that are new in it were released by other members, so this member owns
them at once. Unchanged partitions are read without interruption. Heartbeats continue meanwhile.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any, Final
from uuid import UUID

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.aiokafka_parts import DescribeConfigsRequest, Request
from asyncconsumer.errors import (
    AccessDenied,
    BrokerError,
    ConsumerError,
    ConsumerProtocolUnsupported,
    FencedInstanceId,
)
from asyncconsumer.group.classic.attempt import RejoinPacing
from asyncconsumer.group.kip848.config import ConsumerGroupConfig
from asyncconsumer.group.kip848.state import (
    HeartbeatFields,
    HeartbeatReaction,
    MemberState848,
    Phase,
    Timeouts,
    reaction_to,
)
from asyncconsumer.group.kip848.topic_watch import PartitionsById, ResolvedSubscription, TopicWatch
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
_GROUP_RESOURCE: Final = 32  # the config resource type of groups
_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
_SECONDS_TO_LEAVE: Final = 5.0
_WITH_REGEXES: Final = 1  # the first heartbeat version with `topic_regex`
_NOTHING_NEW: Final = HeartbeatFields()


class ConsumerGroupMembership(AsyncResource):
    """A member of a KIP-848 group within its ``async with`` block. Iterating joins the group.

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
        self._wakeup = asyncio.Event()  # set to send a heartbeat now
        self._target_changed = asyncio.Event()  # set when the assignment may have changed
        self._topics = TopicWatch(
            cluster,
            subscription,
            exclude_internal=config.exclude_internal_topics,
            changed=self._wakeup,
            names_found=self._target_changed,
            randomness=randomness,
        )
        self._state = MemberState848(
            str(UUID(int=randomness.getrandbits(128), version=4)),
            Timeouts(
                config.session_timeout_ms / 1000,
                config.rebalance_timeout_ms / 1000,
                suspensions or Suspensions(),
            ),
        )
        self._heartbeat: tuple[Address, Request] | None = None
        self._failure: ConsumerError | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._scope = Scope("consumer group membership")

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._scope)
        stack.callback(self._end)

    # --- state -----------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether this member owns nothing, because it has not joined, is fenced, or has left."""
        return self._state.phase is not Phase.MEMBER

    @property
    def awaiting_assignment(self) -> bool:
        """Whether this member waits for its first assignment from the coordinator."""
        return self.lost

    @property
    def is_current(self) -> bool:
        """Whether the coordinator has this subscription, and its target assignment is reached."""
        state, topics = self._state, self._topics
        known = topics.is_current and state.has_acknowledged(topics.subscribed)
        return known and not self.lost and state.owned == state.target

    @property
    def settles_after(self) -> float:
        """The seconds for which an empty assignment must last until it counts as final.

        Partitions may follow, because other members may need a few heartbeats to revoke them.
        """
        return 3 * self._state.interval

    @property
    def topics(self) -> frozenset[str]:
        """The names of the subscribed topics.

        If the coordinator matches a pattern, only topics of owned partitions are known.
        """
        return self._topics.topics(self._state.owned)

    @property
    def deadline(self) -> float:
        """The loop time until which this member certainly owns its partitions."""
        return self._state.certain_until

    @property
    def last_heartbeat(self) -> float:
        """The loop time at which the last successful heartbeat was sent."""
        return self._state.last_heartbeat

    @property
    def identity(self) -> MemberIdentity | None:
        """The member id and epoch for commits, or None if this member owns nothing."""
        state = self._state
        if state.phase is not Phase.MEMBER:
            return None
        return MemberIdentity(state.member_id, state.epoch, self._config.group_instance_id)

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """The coordinator's address and the heartbeat request, or None if this member owns nothing.

        Another thread sends the request while the event loop is blocked. The request includes the
        owned partitions. Without them, a coordinator that is one epoch ahead would fence this
        member.
        """
        return self._heartbeat

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Record that another thread sent `heartbeat` successfully at the loop time `sent_at`."""
        if self._state.phase is Phase.MEMBER:
            self._state.heartbeat_from_thread(sent_at)

    @property
    def subscription(self) -> Subscription:
        """The current subscription."""
        return self._topics.subscription

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription of this member."""
        self._topics.subscribe(subscription)

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Join the group, and yield each changed assignment until this member leaves or fails."""
        self._join()
        while True:
            if self._failure is not None:
                raise self._failure
            phase, target = self._state.phase, self._topics.known(self._state.target)
            if phase is Phase.OUT:
                return
            if phase is Phase.FENCED:
                yield Assignment(lost=frozenset(self._topics.named(self._state.owned)))
                await self._pacing.pause(self._state.interval)
                self._state.rejoin()
                self._wakeup.set()
            elif phase is Phase.MEMBER and self._is_due(target):
                self._state.hand_over(target)
                self._target_changed.clear()
                yield self._assignment(target)
                self._confirm(target)
            else:
                self._confirm(target)
                self._target_changed.clear()
                await self._target_changed.wait()

    def rebalance_pending(self) -> bool:
        """Return whether the target assignment may have changed since the last yielded assignment.

        After a call that returned True, `assignments` yields again even if the partitions are the
        same. The caller may have stopped loading offsets for the last assignment.
        """
        if due := self._target_changed.is_set():
            self._state.hand_over_again()
        return due

    def _is_due(self, target: PartitionsById) -> bool:
        if self._state.handed_over:
            return target != self._state.owned
        return bool(target) or not self._state.target  # otherwise wait for its topic names

    def _confirm(self, target: PartitionsById) -> None:
        """Record that only the partitions in `target` are read, and confirm that in a heartbeat."""
        self._state.confirm(target)
        if self._state.unacknowledged:
            self._wakeup.set()

    def _assignment(self, target: PartitionsById) -> Assignment:
        topics = self._topics
        fresh = frozenset(topics.named(topics.fresh(target)))
        return Assignment(dict.fromkeys(topics.named(target), 0), fresh=fresh)

    async def leave(self) -> None:
        """Leave the group, and try to notify the coordinator for at most 5 seconds.

        A static member leaves temporarily: its assignment is kept for the session timeout.
        """
        is_out = self._state.phase is Phase.OUT
        present = (
            not is_out
            and self._heartbeat_task is not None
            and (not self.lost or self._failure is None)
        )
        self._end()
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.wait({self._heartbeat_task})
        if not present:
            return
        static = self._config.group_instance_id is not None
        message = self._message(STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH)
        try:
            async with asyncio.timeout(_SECONDS_TO_LEAVE):
                await self._send_leave(message)
        except TimeoutError:
            _log.warning(
                "%s could not leave its group within %g s; the group waits for its session timeout",
                *(self._label, _SECONDS_TO_LEAVE),
            )

    async def _send_leave(self, message: Request) -> None:
        delays = self._delays()
        while True:
            try:
                async with self._coordinator.reached(Traffic.HEARTBEAT) as connection:
                    await self._request(connection, message)
                    return
            except ConsumerError as error:
                if not error.retriable:
                    _log.info(
                        "%s left; the coordinator refused its leave request: %s", self._label, error
                    )
                    return
                await asyncio.sleep(next(delays))

    # --- heartbeats ------------------------------------------------------------------------------

    @property
    def _label(self) -> str:
        return f"member {self._state.member_id} of group {self._config.group_id}"

    def _join(self) -> None:
        self._scope.check_open()
        if self._heartbeat_task is None:
            self._heartbeat_task = self._scope.start(
                self._guarded(self._run_heartbeats()), "group heartbeats"
            )
            self._scope.start(self._guarded(self._topics.run_lookups()), "look at topics")
            self._scope.start(self._guarded(self._topics.run_name_lookups()), "name topics")

    def _end(self) -> None:
        self._state.end()
        self._heartbeat = None
        self._target_changed.set()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`. If it fails, store its error, which `assignments` then raises."""
        try:
            await work
        except ConsumerError as error:
            if isinstance(error, FencedInstanceId):
                self._end()  # another member took over; other errors leave the ownership as it is
            self._failure = self._failure or error
            self._target_changed.set()

    async def _run_heartbeats(self) -> None:
        """Join the group. Send a heartbeat when one is due or there is something to report."""
        log, delays, learnt = RateLimitedLogger(_log), self._delays(), False
        while True:
            self._wakeup.clear()
            subscribed = self._topics.subscribed
            if subscribed is None or self._state.phase is Phase.FENCED:
                learnt = False
                await self._wakeup.wait()
                continue
            if not learnt:
                await self._look_up_session_timeout()
                learnt = True
            try:
                due = await self._send_heartbeat(subscribed)
                delays = self._delays()
            except ConsumerError as error:
                self._react(error)
                log.warning("a heartbeat of %s failed: %s", self._label, error)
                due = asyncio.get_running_loop().time() + next(delays)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wakeup.wait()

    def _delays(self) -> Iterator[float]:
        return self._pacing.waits()

    async def _look_up_session_timeout(self) -> None:
        group, assumed = self._config.group_id, self._config.session_timeout_ms
        learnt = await _session_timeout_ms(self._cluster, group, otherwise=assumed)
        self._state.set_session_timeout(learnt / 1000)

    async def _send_heartbeat(self, subscribed: ResolvedSubscription) -> float:
        """Send one heartbeat. Return the loop time at which the next one is due."""
        state = self._state
        async with self._coordinator.reached(Traffic.HEARTBEAT) as connection:
            fields = state.next_fields(subscribed, self._regex(connection, subscribed.subscription))
            sent_at = asyncio.get_running_loop().time()
            state.on_send(sent_at)
            joins = state.phase is Phase.JOINING
            answer = await self._request(connection, self._message(state.epoch, fields))
            if state.on_response(answer, fields, sent_at):
                self._target_changed.set()
            if joins:
                self._pacing.on_generation()
            again = self._message(state.epoch, HeartbeatFields(owned=state.owned))
            self._heartbeat = connection.address, again
        return sent_at + state.interval

    def _regex(self, connection: BrokerConnection, subscription: Subscription) -> str | None:
        """Return the pattern that the coordinator is to match, or "" if it gets topic names.

        Return None if the coordinator does not support patterns. Raise ConsumerProtocolUnsupported
        if it does not support KIP-848.
        """
        versions = connection.versions.get(ConsumerGroupHeartbeatRequest.API_KEY)
        if versions is None:
            reason = f"its coordinator {connection.address} does not support KIP-848"
            raise ConsumerProtocolUnsupported(self._config.group_id, reason)
        if versions[1] < _WITH_REGEXES:
            self._topics.match_locally()
            return None
        return self._topics.regex(subscription)

    def _message(self, epoch: int, fields: HeartbeatFields = _NOTHING_NEW) -> Request:
        config, everything, owned = self._config, fields.everything, fields.owned
        return ConsumerGroupHeartbeatRequest(
            config.group_id,
            self._state.member_id,
            epoch,
            instance_id=config.group_instance_id,
            rack_id=config.client_rack or None if everything else None,
            rebalance_timeout_ms=config.rebalance_timeout_ms if everything else -1,
            topics=fields.topics,
            topic_regex=fields.topic_regex,
            server_assignor=config.group_remote_assignor if everything else None,
            owned=None if owned is None else {topic: sorted(ns) for topic, ns in owned.items()},
        )

    async def _request(self, connection: BrokerConnection, message: Request) -> dict[str, Any]:
        response = await connection.request(message, timeout=self._state.request_timeout)
        answer: dict[str, Any] = response.to_object()
        if code := answer["error_code"]:
            reason = answer["error_message"] or "the heartbeat failed"
            raise BrokerError.from_code(
                code, f"group {self._config.group_id!r}: {reason.rstrip('.')}"
            )
        return answer

    def _react(self, error: ConsumerError) -> None:
        """Prepare the next heartbeat after an error. Raise the error if it is fatal."""
        state, reaction = self._state, reaction_to(error)
        if reaction is HeartbeatReaction.UNSUPPORTED:
            raise ConsumerProtocolUnsupported(self._config.group_id, str(error)) from error
        was_member = state.phase is Phase.MEMBER
        if reaction is HeartbeatReaction.END or (
            reaction is HeartbeatReaction.REJOIN_OR_END and not was_member
        ):
            raise error
        state.resend_everything()
        if reaction is not HeartbeatReaction.RETRY and was_member:
            state.mark_fenced()
            self._heartbeat = None
            self._target_changed.set()


async def _session_timeout_ms(cluster: Cluster, group_id: str, otherwise: int) -> int:
    """Return the group's session timeout in ms, as the group's config on the brokers sets it.

    Return `otherwise` if the config cannot be read.
    """
    try:
        answer = await cluster.ask_any(
            DescribeConfigsRequest([(_GROUP_RESOURCE, group_id, [_SESSION_TIMEOUT])])
        )
        for resource in answer.to_object()["resources"]:
            if code := resource["error_code"]:
                raise BrokerError.from_code(code, f"the settings of group {group_id!r}")
            for entry in resource["config_entries"]:
                if (
                    entry["config_names"] == _SESSION_TIMEOUT
                    and str(entry["config_value"]).isdecimal()
                ):
                    return int(entry["config_value"])
    except AccessDenied:
        _log.warning(
            "group %s: assuming a session timeout of %d ms, because the ACLs of the cluster forbid "
            "this user to look it up. If it is shorter, records may be delivered after their "
            "partition was lost. Allow this user DescribeConfigs on the group",
            *(group_id, otherwise),
        )
    except ConsumerError as error:
        _log.info(
            "group %s: assuming a session timeout of %d ms, because the lookup failed: %s",
            *(group_id, otherwise, error),
        )
    return otherwise
