"""A member's signs of life: sent for as long as it is in a generation, whatever else it does."""

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
from asyncconsumer.errors import BrokerError, ConsumerError, RequestTimedOut
from asyncconsumer.group.classic.reactions import GroupRequest, Reaction, reaction
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.classic_group import HeartbeatRequest
from asyncconsumer.types import Address, MemberIdentity

if TYPE_CHECKING:
    from aiokafka.protocol.api import Request

_log: Final = logging.getLogger(__name__)
_CERTAIN: Final = 0.9  # of a timeout: the rest is for clocks that do not run alike
_TRIES: Final = 4  # that fit into a session
_HURRYING: Final = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds from one heartbeat to the next
_LEAST_REST: Final = 0.5  # of an interval


class HeartbeatResult(NamedTuple):
    """What a heartbeat found out, if that is more than that all is well."""

    reaction: Reaction
    error: ConsumerError | None = None


class _Seconds(NamedTuple):
    """How long the coordinator waits, and how long we do."""

    session: float
    rebalance: float
    interval: float
    suspensions: Suspensions

    def end(self, start: float, timeout: float) -> float:
        """The end of a timeout by the loop's clock, which does not count suspended time."""
        return start + _CERTAIN * timeout - self.suspensions.since(start)


class _HeartbeatSchedule:
    """When to send the next heartbeat: with all other members of the generation.

    It begins for all of them at once, and they go on in step. So they learn of the next one
    together, and nobody has stopped reading while another has not even heard of it. The steps are
    not even: a session ends a whole number of intervals after a heartbeat, and would always end
    just after the next ones.
    """

    def __init__(self, interval: float) -> None:
        self.under_way = asyncio.Event()  # there is a generation
        self._interval = interval
        self._hurried = asyncio.Event()
        self._soon: Iterator[float] = iter(())  # how long to wait, while that is less than usual
        self._steps: Iterator[float] = iter(())  # the moments for all
        self._due = -inf

    def begin(self, generation: int) -> None:
        """Now. The first one is sent at once."""
        self._steps = self._foretold(generation, asyncio.get_running_loop().time())
        self._due = -inf
        self.under_way.set()
        self.hurry()

    def end(self) -> None:
        """There is no generation any more."""
        self.under_way.clear()

    def _foretold(self, generation: int, at: float) -> Iterator[float]:
        chance = Random(generation)  # noqa: S311 - all must come to the same
        while True:
            at += self._interval * chance.uniform(_LEAST_REST, 1)
            yield at

    def hurry(self, *waits: float) -> None:
        """Send one now, some more after these waits, and then as usual."""
        self._soon = iter(waits)
        self._hurried.set()

    def sends(self) -> None:
        """One is sent now."""
        self._hurried.clear()

    async def rest(self) -> None:
        """Until the next one is due, or there is a hurry."""
        now = asyncio.get_running_loop().time()
        while self._due <= now:
            self._due = next(self._steps)
        seconds = self._due - now
        try:
            async with asyncio.timeout(min(seconds, next(self._soon, seconds))):
                await self._hurried.wait()
        except TimeoutError:
            pass


class Heartbeats:
    """Keeps the session of a member, over a connection of its own.

    Sessions are counted from when a request was sent: the coordinator cannot have counted from
    before. So is the time that we have to join when it rebalances, which is told by the answer.
    `heartbeat` may be read by other threads: it is what anybody could send for us.

    A coordinator that is still reading its groups says yes to any heartbeat. That is as good as
    true if it comes before our session can be over: the one before it had not given us up by then.
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
        self.identity: MemberIdentity | None = None  # None outside of any generation
        self.heartbeat: tuple[Address, Request] | None = None
        self._coordinator = coordinator
        self._seconds = _Seconds(
            session_ms / 1000, rebalance_ms / 1000, interval_ms / 1000, suspensions
        )
        self._randomness = randomness
        self._sent = -inf  # the last request that was answered well
        self._heard = -inf  # the last good answer, which may have been long on its way
        self._stable = -inf  # the last request before any rebalance that we are not in
        self._missed = False  # a heartbeat had no answer since the last good one
        self._in_time = False  # we asked to be in the next generation while it waited for us
        self._pace = _HeartbeatSchedule(self._seconds.interval)
        self._quiet = RateLimitedLogger(_log)

    @property
    def last_heartbeat(self) -> float:
        """When the last request was sent that was answered well."""
        return self._sent

    @property
    def deadline(self) -> float:
        """Until when the coordinator certainly goes on with us.

        It does not when we are silent for a session, or do not join in time a rebalance of which we
        may not even have heard.
        """
        if self.identity is None:
            return -inf
        return min(self._seconds.end(self._sent, self._seconds.session), self._join_by)

    @property
    def _join_by(self) -> float:
        """Until when the next generation surely waits for us, if one is being made."""
        return self._seconds.end(self._stable, self._seconds.rebalance)

    @contextmanager
    def joining(self) -> Iterator[None]:
        """We ask to be in the next generation: it is others that are waited for.

        Unless we ask so late that it may have begun without us: then only the answer tells. Who
        asked in time may have to ask again, when others are waited for for long.
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
        """We are in a generation, says the answer to a request of that moment."""
        self.identity = identity
        self.heartbeat = address, self._request(identity)
        self._answered(sent_at, stable=True)
        self._pace.begin(identity.generation)

    def end(self) -> None:
        """We are in none any more."""
        self.identity = self.heartbeat = None
        self._sent = self._heard = self._stable = -inf
        self._in_time = False
        self._pace.end()

    def hurry(self) -> None:
        """Another generation may follow soon, which only a heartbeat tells: send some more."""
        self._pace.hurry(*_HURRYING)

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Another one sent a heartbeat, in whatever thread, and had its answer within an interval.

        If that may have been after our session it says nothing.
        """
        skipped = self._seconds.suspensions.since(self._sent)
        if sent_at + self._seconds.interval + skipped < self._sent + self._seconds.session:
            self.proven(sent_at)

    def proven(self, sent_at: float) -> None:
        """The coordinator knew us at that moment, or after it."""
        if self.identity is not None:
            self._sent = max(self._sent, sent_at)
            self._heard = max(self._heard, sent_at)

    async def news(self) -> AsyncIterator[HeartbeatResult]:
        """Send heartbeats for ever. Of what comes of them only what matters is told.

        Connections that break, and a coordinator that moves, do not matter: it is found again, and
        heartbeats go on. A whole session without an answer is a loss, though.
        """
        now, waits = asyncio.get_running_loop().time, self._waits()
        while True:
            await self._pace.under_way.wait()
            self._pace.sends()
            identity, address = self.identity, self._address
            assert identity is not None
            error = await self._beat(identity)
            if identity != self.identity:
                continue  # what is said of an older generation says nothing
            what = Reaction.DONE if error is None else reaction(GroupRequest.HEARTBEAT, error)
            if what in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
                self._missed = True
                self._quiet.warning("no heartbeat: %s", error)
                if now() - self._heard >= self._seconds.session:
                    yield HeartbeatResult(Reaction.REJOIN_EMPTY, error)
                await asyncio.sleep(next(waits))
                continue
            waits = self._waits()
            if self._address != address:
                yield HeartbeatResult(Reaction.FIND_COORDINATOR)
            if what is not Reaction.DONE:
                yield HeartbeatResult(what, error)
            await self._pace.rest()

    @property
    def _address(self) -> Address | None:
        return None if self.heartbeat is None else self.heartbeat[0]

    def _answered(self, sent_at: float, *, stable: bool) -> None:
        self.proven(sent_at)
        self._missed = False
        self._heard = asyncio.get_running_loop().time()
        if stable:
            self._stable, self._in_time = sent_at, False

    async def _beat(self, identity: MemberIdentity) -> ConsumerError | None:
        """One heartbeat; what went wrong with it."""
        now, allowed = asyncio.get_running_loop().time, self._seconds.session / _TRIES
        request = self._request(identity)
        try:
            async with (
                asyncio.timeout(allowed) as opening,
                self._coordinator.reached(Traffic.HEARTBEAT) as connection,
            ):
                opening.reschedule(None)
                self._seconds.suspensions.look()
                sent = now()
                answer = (await connection.request(request, timeout=allowed)).to_object()
                if identity != self.identity:
                    return None
                self.heartbeat = connection.address, request
                if code := answer["error_code"]:
                    error = BrokerError.of(code, f"a heartbeat in {self._coordinator.group_id!r}")
                    if reaction(GroupRequest.HEARTBEAT, error) is Reaction.REJOIN:
                        self._answered(sent, stable=False)  # it wants us in the next one
                    raise error
                skipped = self._seconds.suspensions.since(self._sent, certain=True)
                if self._missed and now() + skipped >= self._sent + self._seconds.session:
                    return RequestTimedOut(connection.address, "no answer within the session")
                self._answered(sent, stable=True)
        except TimeoutError:
            address = self._coordinator.address
            self._coordinator.forget(address)
            return RequestTimedOut(address or "the cluster", f"no way there in {allowed:g} s")
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
