"""A pipelined connection to one ZooKeeper server, with pings."""

import asyncio
import struct
from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol, TypeVar

from asyncconsumer.aio.clock import loop_time
from asyncconsumer.errors import (
    AuthFailed,
    ConnectionLoss,
    ConsumerError,
    ServerUnusable,
    SessionExpired,
    SessionMoved,
    ZooKeeperError,
)
from asyncconsumer.types import Address
from asyncconsumer.zookeeper import requests
from asyncconsumer.zookeeper.ping import PingAction, PingTimer
from asyncconsumer.zookeeper.requests import Call, WatchNotification
from asyncconsumer.zookeeper.transport import ResponseBody, Transport

T = TypeVar("T")

_PING: Final = -2
_AUTH: Final = -4


class Listener(Protocol):
    """An object that handles the watch events and the end of a connection.

    Its methods are called synchronously.
    """

    def happened(self, event: WatchNotification) -> None:
        """Handle a watch event that the server sent."""

    def ended(self, connection: "ZooKeeperConnection") -> None:
        """Handle the end of a connection. Its pending calls have failed already."""


@dataclass(slots=True, eq=False)
class _PendingCall:
    """A call in flight.

    If its future is done before the response arrives, for example cancelled, the response is
    dropped.
    """

    xid: int
    call: Call[Any]
    answer: asyncio.Future[Any]
    sent: float


class ZooKeeperConnection:
    """A pipelined connection to one server, after the handshake. It does not reconnect.

    When it ends, all pending calls fail in the same iteration of the event loop. The cancellation
    of a call does not affect the connection.
    """

    def __init__(
        self,
        address: Address,
        transport: Transport,
        listener: Listener,
        opened: float,
        last_zxid: int,
    ) -> None:
        self.address = address
        self.since = loop_time()
        timeout = transport.connect_response.timeout_ms / 1000
        self.ping_timer = PingTimer(timeout, opened, self.since)
        self.last_zxid = last_zxid
        self.ending: ConsumerError | None = None
        self._transport = transport
        self._listener = listener
        self._pending: deque[_PendingCall] = deque()
        self._unordered: list[_PendingCall] = []  # pings and logins, which have fixed xids
        self._xid = 0
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self.ping_timer.next_due(), self._check_due)
        transport.listen(self)

    def __repr__(self) -> str:
        state = "open" if self.ending is None else f"ended ({self.ending})"
        return f"<Connection to {self.address}, {state}, {len(self._pending)} calls in flight>"

    def send(self, call: Call[T]) -> asyncio.Future[T]:
        """Send a call now. Return a future of its result."""
        if self.ending is not None:
            raise ConnectionLoss(call.path, str(self.ending), maybe_applied=False)
        self._xid = self._xid % (2**31 - 1) + 1
        pending = self._send(self._xid, call)
        self._pending.append(pending)
        return pending.answer

    def authenticate(self, user_and_password: str) -> asyncio.Future[None]:
        """Log in with the digest scheme."""
        pending = self._send(_AUTH, requests.digest_auth(user_and_password))
        self._unordered.append(pending)
        return pending.answer

    def close(self, reason: ConsumerError) -> None:
        """End the connection now. Calls in flight fail with `reason`."""
        self._end(reason)

    async def wait_closed(self) -> None:
        """Wait until the socket of an ended connection is closed."""
        await self._transport.wait_closed()

    def _send(self, xid: int, call: Call[Any]) -> _PendingCall:
        loop = asyncio.get_running_loop()
        self._transport.send(xid, call)
        sent = self.ping_timer.on_send(loop.time())
        return _PendingCall(xid, call, loop.create_future(), sent)

    # --- called by the transport -----------------------------------------------------------------

    def answered(self, xid: int, zxid: int, error: int, body: ResponseBody) -> None:
        """Resolve the pending call that this response belongs to."""
        pending = self._pop(xid)
        if pending is None:
            self.lost(f"it answered request {xid} out of order")
            return
        self.ping_timer.on_answer(pending.sent, loop_time())
        self.last_zxid = max(self.last_zxid, zxid)
        if error:
            self._fail_call(pending, ZooKeeperError.from_code(error, pending.call.path))
            return
        try:
            result = self._transport.read(pending.call, body)
        except (ValueError, struct.error) as invalid:  # UnicodeDecodeError is a ValueError
            reason = f"its answer to {pending.call.name} is invalid: {invalid}"
            _fail(pending, reason)
            self.lost(reason)
        except ZooKeeperError as refusal:
            self._fail_call(pending, refusal)
        else:
            if not pending.answer.done():
                pending.answer.set_result(result)

    def notified(self, event: WatchNotification) -> None:
        """Pass the event of a watch to the listener."""
        self.ping_timer.on_event(loop_time())
        self._listener.happened(event)

    def lost(self, reason: str) -> None:
        """End the connection because its transport broke."""
        self._end(ServerUnusable(self.address, reason))

    def _pop(self, xid: int) -> _PendingCall | None:
        """Remove the pending call with this xid, and return it.

        Return None if no such call is pending. Also return None if an older call is still pending,
        because servers answer calls in order. Pings and logins have negative xids, and may be
        answered out of order.
        """
        if xid > 0:
            return (
                self._pending.popleft() if self._pending and self._pending[0].xid == xid else None
            )
        pending = next((call for call in self._unordered if call.xid == xid), None)
        if pending is not None:
            self._unordered.remove(pending)
        return pending

    def _fail_call(self, pending: _PendingCall, error: ZooKeeperError) -> None:
        if not pending.answer.done():
            pending.answer.set_exception(error)
            pending.answer.exception()  # retrieved, because the caller may drop the future
        if isinstance(error, SessionExpired | SessionMoved | AuthFailed):
            self._end(ServerUnusable(self.address, str(error)))  # the next handshake shows why

    # --- endings ---------------------------------------------------------------------------------

    def _check_due(self) -> None:
        """Send a ping or end the connection, if the ping timer requests it.

        If the connection has not ended, schedule the next call.
        """
        now = loop_time()
        oldest = self._pending[0].sent if self._pending else inf
        due = self.ping_timer.due(oldest, now)
        if due is PingAction.SILENCE:
            self.lost(f"no data for {now - self.ping_timer.received:.1f} s")
        elif due is PingAction.UNANSWERED:
            self.lost(f"no answer to {self._pending[0].call.name} in {now - oldest:.1f} s")
        else:
            if due is PingAction.PING:
                self._unordered.append(self._send(_PING, requests.ping()))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self.ping_timer.next_due(oldest), self._check_due)

    def _end(self, reason: ConsumerError) -> None:
        """Fail the pending calls, close the transport, and notify the listener.

        Only the first call has an effect.
        """
        if self.ending is not None:
            return
        self.ending = reason
        self._timer.cancel()
        pending = (*self._unordered, *self._pending)
        self._unordered.clear()
        self._pending.clear()
        for call in pending:
            _fail(call, str(reason))
        self._transport.drop()
        self._listener.ended(self)


def _fail(pending: _PendingCall, reason: str) -> None:
    if not pending.answer.done():
        pending.answer.set_exception(ConnectionLoss(pending.call.path, reason))
        pending.answer.exception()  # retrieved, because nothing awaits a ping
