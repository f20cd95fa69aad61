"""The transport between a client and a server of the fake ensemble.

Requests and responses have a latency, keep their order, and may be lost.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from asyncconsumer.zookeeper.requests import Call, WatchNotification
from asyncconsumer.zookeeper.transport import ConnectResponse, Receiver, ResponseBody

T = TypeVar("T")


class Answer(NamedTuple):
    """A response or a watch event in transit."""

    xid: int
    zxid: int
    error: int
    body: Any


class _Hangup(NamedTuple):
    reason: str


class Network:
    """The network between a client and the servers, with latency and isolation."""

    def __init__(self, randomness: Random, minimum: float, maximum: float) -> None:
        self.randomness: Final = randomness
        self._minimum, self._maximum = minimum, maximum
        self._open = asyncio.Event()
        self._open.set()
        self._held: list[Callable[[], None]] = []

    def latency(self) -> float:
        """Return the latency of the next message in seconds."""
        return self._minimum + (self._maximum - self._minimum) * self.randomness.random()

    async def cross(self) -> None:
        """Wait for as long as one message takes: its latency, and the end of an isolation."""
        await asyncio.sleep(self.latency())
        await self._open.wait()

    def passes(self, again: Callable[[], None]) -> bool:
        """Return whether a message can be delivered now.

        If the client is isolated, return False, and call `again` after `rejoin`.
        """
        if self._open.is_set():
            return True
        self._held.append(again)
        return False

    def isolate(self) -> None:
        """Delay all messages until `rejoin`."""
        self._open.clear()

    def rejoin(self) -> None:
        """End the isolation, and deliver the delayed messages."""
        self._open.set()
        held, self._held = self._held, []
        for again in held:
            again()


class Server(Protocol):
    """The interface of a server, as a transport uses it."""

    @property
    def frozen(self) -> bool:
        """Whether the server is frozen, so that requests have to wait."""

    def handle(self, transport: "FakeZooKeeperTransport", xid: int, call: Call[Any]) -> None:
        """Handle a request, and send its response to `transport`."""

    def hold(self, act: Callable[[], None]) -> None:
        """Call `act` after the server is thawed."""


class FakeZooKeeperTransport:
    """A transport between a client and a fake ZooKeeper server. It starts no task."""

    def __init__(self, server: Server, welcome: ConnectResponse, network: Network) -> None:
        self.connect_response: Final = welcome
        self.server: Final = server
        self._network = network
        self._receiver: Receiver | None = None
        self._up: deque[tuple[int, Call[Any]]] = deque()
        self._down: deque[Answer | WatchNotification | _Hangup] = deque()
        self._hung_up = False  # closed by the server

    def listen(self, receiver: Receiver) -> None:
        """Set the receiver of responses and events."""
        self._receiver = receiver

    def send(self, xid: int, call: Call[Any]) -> None:
        """Send a request to the server. `xid` is its number in the session."""
        self._up.append((xid, call))
        asyncio.get_running_loop().call_later(self._network.latency(), self.arrive)

    def read(self, call: Call[T], body: ResponseBody) -> T:
        """Return `body`, the value of a response. If it is an exception, raise it."""
        if isinstance(body, Exception):
            raise body
        return body  # type: ignore[no-any-return]

    def drop(self) -> None:
        """Close the connection from the client's side.

        A random number of the requests in transit still arrive at the server.
        """
        self._receiver = None
        survivors = self._network.randomness.randint(0, len(self._up))
        while len(self._up) > survivors:
            self._up.pop()

    async def wait_closed(self) -> None:
        """Return at once, because a fake connection needs no time to close."""

    # --- server side -----------------------------------------------------------------------------

    def arrive(self) -> None:
        """Deliver the oldest request in transit to the server."""
        if self._hung_up or not self._up or not self._network.passes(self.arrive):
            return
        if self.server.frozen:
            self.server.hold(self.arrive)
            return
        self.server.handle(self, *self._up.popleft())

    def tell(self, message: Answer | WatchNotification) -> None:
        """Send a response or an event to the client."""
        if not self._hung_up:
            self._down.append(message)
            asyncio.get_running_loop().call_later(self._network.latency(), self._deliver)

    def hang_up(self, reason: str, *, after_answers: bool = False) -> None:
        """Close the connection from the server's side, with `reason` as the client's error.

        A random number of the responses in transit still arrive. With `after_answers` all of them
        arrive.
        """
        if self._hung_up:
            return
        self._hung_up = True
        self._up.clear()
        if not after_answers:
            survivors = self._network.randomness.randint(0, len(self._down))
            while len(self._down) > survivors:
                self._down.pop()
        self._down.append(_Hangup(reason))
        asyncio.get_running_loop().call_later(self._network.latency(), self._deliver)

    def _deliver(self) -> None:
        if not self._down or not self._network.passes(self._deliver):
            return
        message, receiver = self._down.popleft(), self._receiver
        if receiver is None:
            return
        if isinstance(message, Answer):
            receiver.answered(*message)
        elif isinstance(message, WatchNotification):
            receiver.notified(message)
        else:
            receiver.lost(message.reason)
