"""A thread that keeps a session while the event loop is blocked, and says what blocks it."""

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from aiokafka.protocol.api import Request

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError, ConsumerError, RebalanceInProgress
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.types import Address

if TYPE_CHECKING:
    from collections.abc import Callable

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_LOOKS: Final = 0.5
_BLOCKED_AFTER: Final = 2.0  # seconds in which the event loop did nothing else


class Heartbeating(Protocol):
    """A member for which others may send heartbeats."""

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """What to send, and where to; None while there is no session to keep."""

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """It was answered well."""


class Watchdog:
    """Watches the loop that enters it, within its ``async with`` block.

    While the loop is well it costs a wake-up of two threads each half second. When it is blocked,
    heartbeats are sent from here, with connections of our own, for `most` seconds: a program that
    stands still for ever is to lose its partitions. A C extension that keeps the interpreter's
    lock stops this thread as well; then the session ends, and the member's deadline is the fence.
    """

    def __init__(
        self, member: Heartbeating, config: ConnectionConfig, *, interval: float, most: float
    ) -> None:
        self.blockages = 0
        self._member = member
        self._config = config
        self._interval = interval
        self._most = most
        self._seen = time.monotonic()  # when the loop was last at work
        self._stop: Callable[[], object]

    async def __aenter__(self) -> Self:
        self._seen = time.monotonic()
        started: Future[None] = Future()
        ended: Future[None] = Future()
        watched = _WatchedMember(asyncio.get_running_loop(), threading.get_ident(), started, ended)
        self._thread = threading.Thread(
            target=self._run, args=(watched,), name="asyncconsumer watchdog", daemon=True
        )
        self._thread.start()
        self._ended = asyncio.wrap_future(ended)
        try:
            await asyncio.shield(asyncio.wrap_future(started))
        except asyncio.CancelledError:
            started.result()  # it is a matter of a moment, and then it can be stopped
            self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._stop()
        await asyncio.wait({self._ended})
        self._thread.join()

    def _at_work(self) -> None:
        self._seen = time.monotonic()

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self, watched: "_WatchedMember") -> None:
        try:
            asyncio.run(self._watch(watched))
        except BaseException as error:
            if watched.started.done():
                raise
            watched.started.set_exception(error)
        finally:
            watched.ended.set_result(None)

    async def _watch(self, watched: "_WatchedMember") -> None:
        own, stop = asyncio.get_running_loop(), asyncio.Event()

        def stop_soon() -> None:
            with contextlib.suppress(RuntimeError):  # it has stopped by itself
                own.call_soon_threadsafe(stop.set)

        self._stop = stop_soon
        watched.started.set_result(None)
        randomness, due, named = Random(), 0.0, False  # noqa: S311 - for jitter
        async with BrokerPool(self._config, randomness=randomness) as brokers:
            while not stop.is_set():
                try:
                    watched.loop.call_soon_threadsafe(self._at_work)
                except RuntimeError:
                    return  # the loop was closed without a farewell
                looked = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_SECONDS_BETWEEN_LOOKS):
                        await stop.wait()
                if time.monotonic() - looked > _BLOCKED_AFTER:
                    continue  # the whole process stood still: give the loop its turn
                blocked = time.monotonic() - self._seen
                if blocked < _BLOCKED_AFTER:
                    named = False
                    continue
                if not named:
                    named = True
                    self.blockages += 1
                    watched.name(blocked)
                if blocked < self._most and own.time() >= due:
                    due = own.time() + self._interval
                    await self._beat(brokers)

    async def _beat(self, brokers: BrokerPool) -> None:
        """One heartbeat for a member that cannot send it itself."""
        if (heartbeat := self._member.heartbeat) is None:
            return
        address, message = heartbeat
        try:
            connection = await brokers.connection(address, Traffic.HEARTBEAT)
            sent_at = time.monotonic()
            answer = await connection.request(message, timeout=self._interval)
            code = answer.to_object()["error_code"]
            if code not in (0, RebalanceInProgress.code):
                raise BrokerError.of(code, "a heartbeat while the event loop is blocked")
            self._member.heartbeat_from_thread(sent_at)
        except ConsumerError as error:
            _log.warning("the event loop is blocked, and the session may end: %s", error)


class _WatchedMember(NamedTuple):
    """The loop that is watched, and how its thread is told of ours."""

    loop: asyncio.AbstractEventLoop
    thread: int
    started: "Future[None]"
    ended: "Future[None]"

    def name(self, blocked: float) -> None:
        """Say what keeps it."""
        frame = sys._current_frames().get(self.thread)  # noqa: SLF001 - there is no other way
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "unknown"
        _log.warning(
            "the event loop has been blocked for %.1f s, so nothing is consumed. Run what blocks "
            "it in a thread (asyncio.to_thread). It is at\n%s",
            blocked,
            stack,
        )
