"""Heartbeats of a classic member, sent in the background while it is in a generation."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.aio.wait import wait_set
from asyncconsumer.errors import BrokerError, ConsumerError, RequestTimedOut
from asyncconsumer.group.classic.reactions import GroupRequest, Reaction, reaction_to
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.classic_group import HeartbeatRequest
from asyncconsumer.types import Address, MemberIdentity

if TYPE_CHECKING:
    from asyncconsumer.aiokafka_parts import Request

_log: Final = logging.getLogger(__name__)
_TRIES: Final = 4  # heartbeat attempts that fit into a session timeout
_EXTRA_HEARTBEATS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds between heartbeats after `hurry`
_MIN_DELAY: Final = 0.5  # shortest delay, as a fraction of the interval


class HeartbeatResult(NamedTuple):
    """A heartbeat result to which the member must react. `error` is its cause, if there is one."""

    reaction: Reaction
    error: ConsumerError | None = None


class _Seconds(NamedTuple):
    """The session timeout, rebalance timeout and heartbeat interval, in seconds."""

    session: float
    rebalance: float
    interval: float
    suspensions: Suspensions

    def end(self, start: float, timeout: float) -> float:
        """Return the earliest loop time at which a timeout can end on the coordinator.

        The coordinator measures `timeout` seconds from the loop time `start`.
        """
        return self.suspensions.certain_end(start, timeout)


class _HeartbeatSchedule:
    """The times of a member's heartbeats, which are the same for all members of a generation.

    A generation begins for all members at once, and its number seeds their common schedule. So all
    members learn of the next rebalance at about the same time, and none stops reading early.

    The delays vary, because the session timeout is usually a whole number of intervals. With equal
    delays, the session of a dead member would often end just after the heartbeats of the others.
    """

    def __init__(self, interval: float) -> None:
        self.running = asyncio.Event()  # set while the member is in a generation
        self._interval = interval
        self._hurried = asyncio.Event()
        self._soon: Iterator[float] = iter(())  # shorter delays to use first
        self._steps: Iterator[float] = iter(())  # the loop times of heartbeats, for all members
        self._due = -inf

    def begin(self, generation: int) -> None:
        """Start the schedule of a generation. A heartbeat is due immediately."""
        self._steps = self._times(generation, asyncio.get_running_loop().time())
        self._due = -inf
        self.running.set()
        self.hurry()

    def end(self) -> None:
        """Stop sending heartbeats, because the member belongs to no generation."""
        self.running.clear()

    def _times(self, generation: int, start: float) -> Iterator[float]:
        randomness = Random(generation)  # noqa: S311 - all members must compute the same times
        while True:
            start += self._interval * randomness.uniform(_MIN_DELAY, 1)
            yield start

    def hurry(self, *waits: float) -> None:
        """Make a heartbeat due now, and further ones after the delays in `waits`, in seconds.

        Each delay begins at the heartbeat before it. Afterwards the times of the schedule apply
        again.
        """
        self._soon = iter(waits)
        self._hurried.set()

    def on_send(self) -> None:
        """Note that a heartbeat is being sent, so that an earlier `hurry` needs no other one."""
        self._hurried.clear()

    async def wait_until_due(self) -> None:
        """Wait until the next heartbeat is due by the schedule, or `hurry` requests one."""
        now = asyncio.get_running_loop().time()
        while self._due <= now:
            self._due = next(self._steps)
        seconds = self._due - now
        await wait_set(self._hurried, min(seconds, next(self._soon, seconds)))


class Heartbeats:
    """The heartbeats of one member, sent on a separate connection.

    The session timeout is counted from the time a request was sent, because the coordinator cannot
    have started its timer earlier. The rebalance timeout is counted in the same way. `heartbeat` is
    the current request and its address, and other threads may read and send it.

    A coordinator that is still loading its groups accepts any heartbeat. Such a response is valid
    if it arrives within the session timeout: the previous coordinator cannot have removed the
    member by then.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        session_ms: int,
        rebalance_ms: int,
        interval_ms: int,
        randomness: Random,
        suspensions: Suspensions,
    ) -> None:
        self.identity: MemberIdentity | None = None  # None outside a generation
        self.heartbeat: tuple[Address, Request] | None = None
        self._coordinator = coordinator
        self._seconds = _Seconds(
            session_ms / 1000, rebalance_ms / 1000, interval_ms / 1000, suspensions
        )
        self._randomness = randomness
        self._confirmed_at = -inf  # send time of the last successful request
        self._received = -inf  # arrival of the last successful response
        self._stable = -inf  # send time of the last request answered outside a rebalance
        self._missed = False  # a heartbeat failed since the last success
        self._in_time = False  # JoinGroup was sent within the rebalance timeout
        self._schedule = _HeartbeatSchedule(self._seconds.interval)
        self._log_limit = RateLimitedLogger(_log)

    @property
    def last_heartbeat(self) -> float:
        """The loop time at which the last successful heartbeat was sent, or -inf."""
        return self._confirmed_at

    @property
    def deadline(self) -> float:
        """The loop time until which the coordinator certainly keeps this member in the group.

        The coordinator removes a member after the session timeout without heartbeats. It also
        removes a member that misses the rebalance timeout, even if the member has not yet learnt of
        the rebalance.
        """
        if self.identity is None:
            return -inf
        return min(self._seconds.end(self._confirmed_at, self._seconds.session), self._join_by)

    @property
    def _join_by(self) -> float:
        """The loop time until which a rebalance certainly waits for this member to join."""
        return self._seconds.end(self._stable, self._seconds.rebalance)

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Return a context manager for a JoinGroup request, which suspends the rebalance timeout.

        If the request is sent within the timeout, the coordinator then waits only for other
        members. A retry of such a request may be sent after the timeout. If the first request is
        sent after it, the timeout still applies, because the next generation may have begun
        without this member.
        """
        before = self._stable
        self._in_time = self._in_time or asyncio.get_running_loop().time() < self._join_by
        if self._in_time:
            self._stable = inf
        try:
            yield
        finally:
            if self._stable == inf:
                self._stable = before

    def begin(self, identity: MemberIdentity, sent_at: float, address: Address) -> None:
        """Start the heartbeats of a generation.

        `sent_at` is the send time of its JoinGroup request.
        """
        self.identity = identity
        self.heartbeat = address, self._request(identity)
        self._answered(sent_at, stable=True)
        self._schedule.begin(identity.generation)

    def end(self) -> None:
        """Stop sending heartbeats, because the member belongs to no generation."""
        self.identity = self.heartbeat = None
        self._confirmed_at = self._received = self._stable = -inf
        self._in_time = False
        self._schedule.end()

    def hurry(self) -> None:
        """Send extra heartbeats for a few seconds, because another rebalance is likely now.

        A classic member learns of a rebalance only by the response to a heartbeat.
        """
        self._schedule.hurry(*_EXTRA_HEARTBEATS)

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Record a successful heartbeat that another thread sent at `sent_at`.

        The thread waits at most one heartbeat interval for the response. The heartbeat is ignored
        if the response may have arrived after the session timeout.
        """
        skipped = self._seconds.suspensions.since(self._confirmed_at)
        if sent_at + self._seconds.interval + skipped < self._confirmed_at + self._seconds.session:
            self.confirm(sent_at)

    def confirm(self, sent_at: float) -> None:
        """Record that the coordinator still had this member at the loop time `sent_at`.

        Do nothing if the member is in no generation.
        """
        if self.identity is not None:
            self._confirmed_at = max(self._confirmed_at, sent_at)
            self._received = max(self._received, sent_at)

    async def results(self) -> AsyncIterator[HeartbeatResult]:
        """Send heartbeats forever, and yield the results that require a reaction.

        After a connection failure, the coordinator is looked up again and heartbeats continue. If
        its address has changed, `FIND_COORDINATOR` is yielded. After a session timeout without a
        response, `REJOIN_EMPTY` is yielded.
        """
        now, waits = asyncio.get_running_loop().time, self._waits()
        while True:
            await self._schedule.running.wait()
            self._schedule.on_send()
            identity, address = self.identity, self._address
            assert identity is not None
            error = await self._send_heartbeat(identity)
            if identity != self.identity:
                continue  # the response concerns an older generation
            reaction = (
                Reaction.DONE if error is None else reaction_to(GroupRequest.HEARTBEAT, error)
            )
            if reaction in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
                self._missed = True
                group = self._coordinator.group_id
                self._log_limit.warning("a heartbeat in group %s failed: %s", group, error)
                if now() - self._received >= self._seconds.session:
                    yield HeartbeatResult(Reaction.REJOIN_EMPTY, error)
                await asyncio.sleep(next(waits))
                continue
            waits = self._waits()
            if self._address != address:
                yield HeartbeatResult(Reaction.FIND_COORDINATOR)
            if reaction is not Reaction.DONE:
                yield HeartbeatResult(reaction, error)
            await self._schedule.wait_until_due()

    @property
    def _address(self) -> Address | None:
        return None if self.heartbeat is None else self.heartbeat[0]

    def _answered(self, sent_at: float, *, stable: bool) -> None:
        self.confirm(sent_at)
        self._missed = False
        self._received = asyncio.get_running_loop().time()
        if stable:
            self._stable, self._in_time = sent_at, False

    async def _send_heartbeat(self, identity: MemberIdentity) -> ConsumerError | None:
        """Send one heartbeat. Return its error, or None if it succeeded."""
        now, allowed = asyncio.get_running_loop().time, self._seconds.session / _TRIES
        request = self._request(identity)
        try:
            async with (
                asyncio.timeout(allowed) as opening,
                self._coordinator.reached(Traffic.HEARTBEAT) as connection,
            ):
                opening.reschedule(None)
                self._seconds.suspensions.check()
                sent = now()
                answer = (await connection.request(request, timeout=allowed)).to_object()
                if identity != self.identity:
                    return None
                self.heartbeat = connection.address, request
                if code := answer["error_code"]:
                    group_id = self._coordinator.group_id
                    error = BrokerError.from_code(code, f"heartbeat in {group_id!r}")
                    if reaction_to(GroupRequest.HEARTBEAT, error) is Reaction.REJOIN:
                        self._answered(sent, stable=False)  # the session is alive
                    raise error
                skipped = self._seconds.suspensions.since(self._confirmed_at, certain=True)
                if self._missed and now() + skipped >= self._confirmed_at + self._seconds.session:
                    return RequestTimedOut(connection.address, "no response within the session")
                self._answered(sent, stable=True)
        except TimeoutError:
            address = self._coordinator.address
            self._coordinator.forget(address)
            return RequestTimedOut(address or "the cluster", f"no connection within {allowed:g} s")
        except ConsumerError as error:
            return error
        return None

    def _request(self, identity: MemberIdentity) -> HeartbeatRequest:
        return HeartbeatRequest(
            self._coordinator.group_id,
            identity.generation,
            identity.member_id,
            group_instance_id=identity.instance_id,
        )

    def _waits(self) -> Iterator[float]:
        return backoff(0.05, min(1.0, self._seconds.interval), self._randomness)
