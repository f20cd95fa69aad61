"""A member's signs of life: sent for as long as it is in a generation, whatever else it does."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncconsumer.errors import BrokerError, ConsumerError, RequestTimedOut
from asyncconsumer.group.reactions import Ask, Reaction, reaction
from asyncconsumer.model import Address, Identity
from asyncconsumer.net.brokers import Traffic
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.tasks.backoff import backoff
from asyncconsumer.tasks.quiet import QuietLog
from asyncconsumer.wire.classic_group_messages import HeartbeatRequest

if TYPE_CHECKING:
    from aiokafka.protocol.api import Request

_log: Final = logging.getLogger(__name__)
_CERTAIN: Final = 0.9  # of a timeout: the rest is for clocks that do not run alike
_TRIES: Final = 4  # that fit into a session
_HURRYING: Final = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds from one heartbeat to the next


class News(NamedTuple):
    """What a heartbeat found out, if that is more than that all is well."""

    reaction: Reaction
    error: ConsumerError | None = None


class _Seconds(NamedTuple):
    """How long the coordinator waits, and how long we do."""

    session: float
    rebalance: float
    interval: float


class Heartbeats:
    """Keeps the session of a member, over a connection of its own.

    Sessions are counted from when a request was sent: the coordinator cannot have counted from
    before. So is the time that we have to join when it rebalances, which is told by the answer.
    `heartbeat` may be read by other threads: it is what anybody could send for us.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        session_ms: int,
        rebalance_ms: int,
        interval_ms: int,
        randomness: Random,
    ) -> None:
        self.identity: Identity | None = None  # None outside of any generation
        self.heartbeat: tuple[Address, Request] | None = None
        self._coordinator = coordinator
        self._seconds = _Seconds(session_ms / 1000, rebalance_ms / 1000, interval_ms / 1000)
        self._randomness = randomness
        self._sent = -inf  # the last request that was answered well
        self._heard = -inf  # the last good answer, which may have been long on its way
        self._stable = -inf  # the last request before any rebalance that we are not in
        self._in_generation = asyncio.Event()
        self._hurried = asyncio.Event()
        self._soon: Iterator[float] = iter(())  # how long to wait, while that is less than usual
        self._quiet = QuietLog(_log)

    @property
    def last_sign(self) -> float:
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
        session_ends = self._sent + _CERTAIN * self._seconds.session
        return min(session_ends, self._stable + _CERTAIN * self._seconds.rebalance)

    @contextmanager
    def joining(self) -> Iterator[None]:
        """We ask to be in the next generation: it is others that are waited for."""
        before, self._stable = self._stable, inf
        try:
            yield
        finally:
            if self._stable == inf:
                self._stable = before

    def begin(self, identity: Identity, sent_at: float, address: Address) -> None:
        """We are in a generation, says the answer to a request of that moment."""
        self.identity = identity
        self.heartbeat = address, self._request(identity)
        self._answered(sent_at, stable=True)
        self._in_generation.set()
        self._look_soon()

    def end(self) -> None:
        """We are in none any more."""
        self.identity = self.heartbeat = None
        self._sent = self._heard = self._stable = -inf
        self._in_generation.clear()

    def hurry(self) -> None:
        """Another generation may follow soon, which only a heartbeat tells: send some more."""
        self._look_soon(*_HURRYING)

    def sign_of_life(self, sent_at: float) -> None:
        """A heartbeat of that moment was answered well, whoever sent it, in whatever thread."""
        if self.identity is not None:
            self._sent = max(self._sent, sent_at)
            self._heard = max(self._heard, sent_at)

    async def news(self) -> AsyncIterator[News]:
        """Send heartbeats for ever. Of what comes of them only what matters is told.

        Connections that break, and a coordinator that moves, do not matter: it is found again, and
        heartbeats go on. A whole session without an answer is a loss, though.
        """
        now, waits = asyncio.get_running_loop().time, self._waits()
        while True:
            await self._in_generation.wait()
            self._hurried.clear()
            identity, address, due = self.identity, self._address, now() + self._seconds.interval
            assert identity is not None
            error = await self._beat(identity)
            if identity != self.identity:
                continue  # what is said of an older generation says nothing
            what = Reaction.DONE if error is None else reaction(Ask.HEARTBEAT, error)
            if what in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
                self._quiet.warning("no heartbeat: %s", error)
                if now() - self._heard >= self._seconds.session:
                    yield News(Reaction.REJOIN_EMPTY, error)
                await asyncio.sleep(next(waits))
                continue
            waits = self._waits()
            if self._address != address:
                yield News(Reaction.FIND_COORDINATOR)
            if what is not Reaction.DONE:
                yield News(what, error)
            await self._rest(due - now())

    def _look_soon(self, *waits: float) -> None:
        """Send one now, some more after these waits, and then as usual, each member at its time.

        A generation begins for all at once. If they all went on in step, the end of a session,
        which is counted from a heartbeat as well, would be noticed almost an interval later.
        """
        self._soon = iter((*waits, self._randomness.uniform(0, self._seconds.interval)))
        self._hurried.set()

    async def _rest(self, seconds: float) -> None:
        """Until the next one is due, or there is a hurry."""
        try:
            async with asyncio.timeout(min(seconds, next(self._soon, seconds))):
                await self._hurried.wait()
        except TimeoutError:
            pass

    @property
    def _address(self) -> Address | None:
        return None if self.heartbeat is None else self.heartbeat[0]

    def _answered(self, sent_at: float, *, stable: bool) -> None:
        self.sign_of_life(sent_at)
        self._heard = asyncio.get_running_loop().time()
        if stable:
            self._stable = sent_at

    async def _beat(self, identity: Identity) -> ConsumerError | None:
        """One heartbeat; what went wrong with it."""
        now, allowed = asyncio.get_running_loop().time, self._seconds.session / _TRIES
        request = self._request(identity)
        try:
            async with (
                asyncio.timeout(allowed) as opening,
                self._coordinator.reached(Traffic.HEARTBEAT) as connection,
            ):
                opening.reschedule(None)
                sent = now()
                answer = (await connection.request(request, timeout=allowed)).to_object()
                if identity != self.identity:
                    return None
                self.heartbeat = connection.address, request
                if code := answer["error_code"]:
                    error = BrokerError.of(code, f"a heartbeat in {self._coordinator.group_id!r}")
                    if reaction(Ask.HEARTBEAT, error) is Reaction.REJOIN:
                        self._answered(sent, stable=False)  # it wants us in the next one
                    raise error
                self._answered(sent, stable=True)
        except TimeoutError:
            address = self._coordinator.address
            self._coordinator.forget(address)
            return RequestTimedOut(address or "the cluster", f"no way there in {allowed:g} s")
        except ConsumerError as error:
            return error
        return None

    def _request(self, identity: Identity) -> HeartbeatRequest:
        return HeartbeatRequest(
            self._coordinator.group_id,
            identity.generation,
            identity.member_id,
            group_instance_id=identity.instance_id,
        )

    def _waits(self) -> Iterator[float]:
        return backoff(0.05, min(1.0, self._seconds.interval), self._randomness)
