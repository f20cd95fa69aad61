"""The task that keeps a ZooKeeper session across connections, and detects its expiry."""

import asyncio
import copy
import logging
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from math import inf
from random import Random
from typing import Final, NoReturn, TypeVar

from asyncconsumer.aio.clock import loop_time
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import (
    AuthFailed,
    ClosedError,
    ConnectionLoss,
    ConsumerError,
    NoNode,
    ServerUnusable,
    SessionExpired,
    SessionMoved,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from asyncconsumer.zookeeper import requests, sasl
from asyncconsumer.zookeeper.connection import ZooKeeperConnection
from asyncconsumer.zookeeper.ensemble import Ensemble, OpenedTransport
from asyncconsumer.zookeeper.requests import Call, WatchNotification
from asyncconsumer.zookeeper.transport import (
    ConnectRequest,
    ConnectResponse,
    TransportOpener,
    open_transport,
)
from asyncconsumer.zookeeper.watch import Watches

T = TypeVar("T")

_NO_SESSION: Final = ConnectResponse(0, bytes(16), 0)
_GRACE: Final = 2.0  # seconds for the request that ends the session
_IN_FLIGHT: Final = 1000  # calls at once; by default a server accepts no more from all its clients

_BROKEN: Final = (ConnectionLoss, SessionExpired, SessionMoved)  # a read is sent again

_log = logging.getLogger(__name__)


class _TimedCall:
    """A base class that stores the detector of suspensions of the machine."""

    def __init__(self, suspensions: Suspensions) -> None:
        self._suspensions = suspensions


class SessionKeeper(_TimedCall, AsyncResource):
    """The current ZooKeeper session and its connection, within an ``async with`` block.

    One task finds servers and waits for connections to end. A session counts as ended only when a
    server answers a connect request with another session id. `epoch` is the number of the current
    session, counted from 1.
    """

    def __init__(
        self,
        config: ZooKeeperConfig,
        *,
        randomness: Random,
        opener: TransportOpener = open_transport,
        suspensions: Suspensions | None = None,
    ) -> None:
        super().__init__(suspensions or Suspensions())
        self.config: Final = config
        self.connected: Final = asyncio.Event()
        self.epoch = 0
        self.requests = 0  # requests sent so far, without pings
        self.former_ids: frozenset[int] = frozenset()  # ids of earlier sessions
        self._ensemble = Ensemble(config, randomness, opener)
        self._identity = _NO_SESSION
        # the last connection, which may have ended
        self._connection: ZooKeeperConnection | None = None
        self.watches: Final = Watches()
        self._changed = asyncio.Event()  # each time the event is set, a new one replaces it
        # the error of the last login; None after a login has succeeded
        self._login_error: ConsumerError | None = None
        self._scope = Scope("ZooKeeper session")

    def __repr__(self) -> str:
        state = "connected" if self.connected.is_set() else "not connected"
        return f"<{type(self).__name__} 0x{self.session_id:x}, epoch {self.epoch}, {state}>"

    async def _open(self, stack: AsyncExitStack) -> None:
        self._scope.check_new()
        stack.push_async_callback(self._close_session)
        stack.callback(self._notify_changed)  # so that waiting calls raise ClosedError
        await stack.enter_async_context(self._scope)
        self._scope.start(self._stay_connected(), "ZooKeeper session")
        await self._wait_for_first_connection()

    # --- state -----------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """The id of the current session, or 0 while there is none."""
        return self._identity.session_id

    @property
    def password(self) -> bytes:
        """The password with which another connection continues the session."""
        return self._identity.password

    @property
    def timeout(self) -> float:
        """The session timeout in seconds, as negotiated with the server."""
        return self._identity.timeout_ms / 1000

    @property
    def last_answer(self) -> float:
        """The latest loop time at which the server certainly prolonged the session.

        It is the send time of the last request that was answered, or -inf without a connection or a
        session.
        """
        if self._connection is None or self._identity is _NO_SESSION:
            return -inf
        return self._connection.ping_timer.last_answer

    @property
    def certain_until(self) -> float:
        """The loop time until which the session certainly lasts without further responses.

        It is two thirds of the session timeout after `last_answer`. Time for which the machine was
        suspended is subtracted, because the loop's clock does not count it.
        """
        skipped = self._suspensions.since(self.last_answer)
        return self.last_answer + self.timeout * 2 / 3 - skipped

    @property
    def suspended(self) -> bool:
        """Whether `certain_until` has passed, so that the server may have ended the session."""
        return loop_time() > self.certain_until

    @property
    def lost_by_own_clock(self) -> bool:
        """Whether the whole session timeout has passed since `last_answer`.

        The server has then probably ended the session, even if no response has shown that.
        """
        skipped = self._suspensions.since(self.last_answer)
        return loop_time() + skipped - self.last_answer > self.timeout

    def holds(self, epoch: int) -> bool:
        """Return whether znodes created in the session number `epoch` certainly still exist."""
        return not self.is_over(epoch) and not self.lost_by_own_clock

    def check_epoch(self, epoch: int, path: str) -> None:
        """Raise `SessionExpired` if the session number `epoch` is known to have ended.

        `path` is named in the error.
        """
        if self.is_over(epoch):
            raise SessionExpired(path, f"the session of epoch {epoch} is over")

    def is_over(self, epoch: int) -> bool:
        """Return whether the session number `epoch` is known to have ended."""
        return epoch != self.epoch or self._identity is _NO_SESSION

    async def wait_expired(self, epoch: int) -> None:
        """Wait until the session number `epoch` is known to have ended."""
        while not self.is_over(epoch):
            self._scope.check_open()
            await self._changed.wait()

    # --- calls -----------------------------------------------------------------------------------

    async def call(self, call: Call[T], epoch: int | None = None) -> T:
        """Send a call once, as soon as there is a connection. Return its result.

        If `epoch` is set, raise `SessionExpired` unless the session with that number is the current
        one.
        """
        connection = await self._usable(call.path, epoch)
        self.requests += 1
        return await connection.send(call)

    async def read(self, call: Call[T]) -> T:
        """Send a call that only reads. If the connection breaks, send the call again."""
        deadline = inf
        while True:
            try:
                return await self.call(call)
            except _BROKEN:
                deadline = min(deadline, loop_time() + self.config.connection_timeout_ms / 1000)
                if loop_time() >= deadline:
                    raise

    async def read_many(self, calls: Sequence[Call[T]]) -> list[T | None]:
        """Send many calls at once that only read. The result for a missing znode is None."""
        results: list[T | None] = []
        deadline = inf
        while len(results) < len(calls):
            batch = calls[len(results) : len(results) + _IN_FLIGHT]
            connection = await self._usable(batch[0].path, None)
            self.requests += len(batch)
            try:
                answers = [connection.send(call) for call in batch]
                for answer in answers:  # results before a failure are kept
                    results.append(await _unless_missing(answer))  # noqa: PERF401
            except _BROKEN:
                deadline = min(deadline, loop_time() + self.config.connection_timeout_ms / 1000)
                if loop_time() >= deadline:
                    raise
        return results

    async def call_many(
        self, calls: Sequence[Call[T]], epoch: int | None = None
    ) -> list[T | ZooKeeperError]:
        """Send many calls at once, each only once. The result of a failed call is its error.

        If `epoch` is set and the session with that number has ended, the error is `SessionExpired`.
        """
        results: list[T | ZooKeeperError] = []
        while len(results) < len(calls):
            batch = calls[len(results) : len(results) + _IN_FLIGHT]
            try:
                connection = await self._usable(batch[0].path, epoch)
            except ZooKeeperError as error:
                return results + [error] * (len(calls) - len(results))
            self.requests += len(batch)
            for answer in [connection.send(call) for call in batch]:
                results.append(await _or_error(answer))  # noqa: PERF401
        return results

    async def _usable(self, path: str, epoch: int | None) -> ZooKeeperConnection:
        """Wait for a connection and return it. Raise `ConnectionLoss` after the time limit.

        The caller must use the connection before it awaits anything. `path` and `epoch` are those
        of the call to send.
        """
        if (connection := self._checked(path, epoch)) is not None:
            return connection
        allowed = self.config.connection_timeout_ms / 1000
        try:
            async with asyncio.timeout(allowed):
                while (connection := self._checked(path, epoch)) is None:
                    await self._changed.wait()
        except TimeoutError:
            reason = f"no connection to ZooKeeper within {allowed:g} s"
            raise ConnectionLoss(path, reason, maybe_applied=False) from None
        return connection

    def _checked(self, path: str, epoch: int | None) -> ZooKeeperConnection | None:
        self._scope.check_open()
        if epoch is not None:
            self.check_epoch(epoch, path)
        return self._connection if self.connected.is_set() else None

    # --- called by the connection ----------------------------------------------------------------

    def happened(self, event: WatchNotification) -> None:
        """Mark the watches that the event of the server concerns as changed."""
        inside = event.path.removeprefix(self.config.chroot) or "/"
        self.watches.happened(event._replace(path=inside))

    def ended(self, connection: ZooKeeperConnection) -> None:
        """Wake the task that finds servers, because a connection has ended.

        Calls wait for the next connection.
        """
        if connection is self._connection:
            self.connected.clear()
            self._notify_changed()

    # --- connection task -------------------------------------------------------------------------

    async def _stay_connected(self) -> NoReturn:
        while True:
            opened = await self._ensemble.find(self._connect_request())
            if not self._accept(opened):
                opened.transport.drop()
                await opened.transport.wait_closed()
                continue
            zxid = 0 if self._connection is None else self._connection.last_zxid
            address, transport, began = opened
            connection = ZooKeeperConnection(address, transport, self, began, zxid)
            self._connection = connection
            await self._log_in(connection)
            if connection.ending is None:
                self._login_error = None
                self.connected.set()
                self.watches.set_all()
                self._notify_changed()
            while connection.ending is None:
                await self._changed.wait()
            await connection.wait_closed()
            lasted = loop_time() - connection.since
            await self._ensemble.lost(opened.address, connection.ending, lasted)

    def _connect_request(self) -> ConnectRequest:
        zxid = 0 if self._connection is None else self._connection.last_zxid
        known = self._identity
        timeout_ms = known.timeout_ms or self.config.session_timeout_ms
        return ConnectRequest(known.session_id, known.password, timeout_ms, zxid)

    def _accept(self, opened: OpenedTransport) -> bool:
        """Update the session from the response to the handshake.

        Return False if the session has expired or the response is invalid. The next handshake then
        requests a new session.
        """
        response, known = opened.transport.connect_response, self._identity
        if known is not _NO_SESSION and response.session_id != known.session_id:
            self._expire()
        elif response.session_id == 0 or response.timeout_ms <= 0:
            self._ensemble.note_failure(opened.address, f"invalid session: {response}")
        if response.session_id == 0 or response.timeout_ms <= 0:
            return False
        if self._identity is _NO_SESSION:
            self.epoch += 1
        self._identity = response
        return True

    def _expire(self) -> None:
        _log.warning("ZooKeeper session 0x%x of epoch %d has expired", self.session_id, self.epoch)
        self.former_ids |= {self.session_id}
        self._identity = _NO_SESSION
        self._notify_changed()

    async def _log_in(self, connection: ZooKeeperConnection) -> None:
        """Log in on a new connection, if configured. Close the connection if the login fails."""
        address = connection.address
        try:
            async with asyncio.timeout(self._ensemble.allowed(self._identity.timeout_ms)):
                if self.config.sasl is not None:
                    await sasl.login(connection.send, self.config.sasl)
                if self.config.auth is not None:
                    await connection.authenticate(self.config.auth)
        except TimeoutError:
            connection.close(ServerUnusable(address, "no response to the login"))
        except ZooKeeperError as error:
            if isinstance(error, AuthFailed):
                self._login_error = error
                self._notify_changed()
            connection.close(ServerUnusable(address, str(error)))

    # --- open and close --------------------------------------------------------------------------

    async def _wait_for_first_connection(self) -> None:
        allowed = self.config.connection_timeout_ms / 1000
        try:
            async with asyncio.timeout(allowed):
                while not self.connected.is_set():
                    if self._login_error is not None:
                        raise copy.copy(self._login_error)
                    await self._changed.wait()
        except TimeoutError:
            errors = self._ensemble.errors.items()
            reasons = tuple(f"{address}: {reason}" for address, reason in errors)
            raise ZooKeeperUnavailable(self.config.zookeeper_connect, allowed, reasons) from None

    async def _close_session(self) -> None:
        """End the session on the server, so that its ephemeral znodes are deleted at once."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.ending is None:
                async with asyncio.timeout(_GRACE):
                    await connection.send(requests.close_session())
        except (TimeoutError, ZooKeeperError):
            text = (
                "ZooKeeper did not confirm the end of the session; its nodes stay for up to %.1f s"
            )
            _log.warning(text, self.timeout)
        finally:
            connection.close(ClosedError("the ZooKeeper session was closed"))
            self._identity = _NO_SESSION
        await connection.wait_closed()

    def _notify_changed(self) -> None:
        """Wake all tasks that wait for a change of the session or its connection."""
        self._changed.set()
        self._changed = asyncio.Event()


async def _unless_missing(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except NoNode:
        return None


async def _or_error(answer: Awaitable[T]) -> T | ZooKeeperError:
    try:
        return await answer
    except ZooKeeperError as error:
        return error
