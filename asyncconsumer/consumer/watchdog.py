"""A thread that sends heartbeats while the event loop is blocked, and logs what blocks it."""

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.wait import wait_set
from asyncconsumer.aiokafka_parts import Request
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError, ConsumerError, RebalanceInProgress
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.types import Address

if TYPE_CHECKING:
    from collections.abc import Callable

_log: Final = logging.getLogger(__name__)
_CHECK_SECONDS: Final = 0.5
_BLOCKED_AFTER: Final = 2.0  # seconds without activity of the event loop


class Heartbeating(Protocol):
    """A member for which the watchdog's thread can send heartbeats."""

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """The coordinator's address and the heartbeat request, or None without a session."""

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Note that the coordinator responded to a heartbeat without an error.

        The watchdog's thread sent the heartbeat at `sent_at` (`time.monotonic`).
        """


class Watchdog(AsyncResource):
    """A thread that watches the event loop in which its ``async with`` block runs.

    Every half second, the thread checks whether the event loop still runs callbacks. While the loop
    is blocked, the thread sends heartbeats over its own connections, for at most `max_blocked`
    seconds. After that the group reassigns the partitions, as it should for a program that hangs.

    A C extension that holds the GIL blocks this thread as well. The session with the coordinator
    then ends, and no more records are delivered.
    """

    def __init__(
        self, member: Heartbeating, config: ConnectionConfig, *, interval: float, max_blocked: float
    ) -> None:
        self.blockages = 0
        self._member = member
        self._config = config
        self._interval = interval
        self._max_blocked = max_blocked
        self._seen = time.monotonic()  # when the loop last ran
        self._stop: Callable[[], object]

    async def _open(self, stack: AsyncExitStack) -> None:
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
            started.result()  # waits a moment, until `_stop` is set
            self._stop()
            raise
        stack.push_async_callback(self._join)

    async def _join(self) -> None:
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
            with contextlib.suppress(RuntimeError):  # the thread has ended already
                own.call_soon_threadsafe(stop.set)

        self._stop = stop_soon
        watched.started.set_result(None)
        randomness, due, named = Random(), 0.0, False  # noqa: S311 - for jitter
        async with BrokerPool(self._config, randomness=randomness) as brokers:
            while not stop.is_set():
                try:
                    watched.loop.call_soon_threadsafe(self._at_work)
                except RuntimeError:
                    return  # the loop was closed without leaving the block
                looked = time.monotonic()
                await wait_set(stop, _CHECK_SECONDS)
                if time.monotonic() - looked > _BLOCKED_AFTER:
                    continue  # the whole process was suspended: let the loop run first
                blocked = time.monotonic() - self._seen
                if blocked < _BLOCKED_AFTER:
                    named = False
                    continue
                if not named:
                    named = True
                    self.blockages += 1
                    watched.name(blocked)
                if blocked < self._max_blocked and own.time() >= due:
                    due = own.time() + self._interval
                    await self._beat(brokers)

    async def _beat(self, brokers: BrokerPool) -> None:
        """Send one heartbeat for the member, over connections of `brokers`."""
        if (heartbeat := self._member.heartbeat) is None:
            return
        address, message = heartbeat
        try:
            connection = await brokers.connection(address, Traffic.HEARTBEAT)
            sent_at = time.monotonic()
            answer = await connection.request(message, timeout=self._interval)
            code = answer.to_object()["error_code"]
            if code not in (0, RebalanceInProgress.code):
                raise BrokerError.from_code(code, "a heartbeat while the event loop is blocked")
            self._member.heartbeat_from_thread(sent_at)
        except ConsumerError as error:
            _log.warning(
                "failed to send a heartbeat while the event loop is blocked, so the session may "
                "end: %s",
                error,
            )


class _WatchedMember(NamedTuple):
    """The event loop to watch, the thread of that loop, and two futures for that loop.

    The futures are done when the watchdog has started and when it has ended.
    """

    loop: asyncio.AbstractEventLoop
    thread: int
    started: "Future[None]"
    ended: "Future[None]"

    def name(self, blocked: float) -> None:
        """Log the stack at which the loop has been blocked for `blocked` seconds."""
        frame = sys._current_frames().get(self.thread)  # noqa: SLF001 - there is no other way
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "unknown"
        _log.warning(
            "the event loop has been blocked for %.1f s, so nothing is consumed. Run what blocks "
            "it in a thread (asyncio.to_thread). The event loop is at\n%s",
            blocked,
            stack,
        )
