"""One connection to the fake: calls and answers take their time, keep their order, and get lost."""

import asyncio
from collections import deque
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from asyncconsumer.zk.calls import Call, Event
from asyncconsumer.zk.line import Body, Receiver, Welcome

T = TypeVar("T")


class Answer(NamedTuple):
    """What a server sends back."""

    xid: int
    zxid: int
    error: int
    body: Any


class _Hangup(NamedTuple):
    reason: str


class Network(NamedTuple):
    """How long a message is on its way, in seconds, and the chance that decides it."""

    randomness: Random
    least: float
    most: float

    def latency(self) -> float:
        """For one message."""
        return self.least + (self.most - self.least) * self.randomness.random()


class Server(Protocol):
    """The end that takes calls."""

    @property
    def frozen(self) -> bool:
        """Whether it takes none for now."""

    def handle(self, line: "FakeLine", xid: int, call: Call[Any]) -> None:
        """A call has arrived."""

    def hold(self, line: "FakeLine") -> None:
        """A call has arrived while it is frozen: let the line go on later."""


class FakeLine:
    """A line as `zk.line.Line` wants it. Nothing in it is a task."""

    def __init__(self, server: Server, welcome: Welcome, network: Network) -> None:
        self.welcome: Final = welcome
        self.server: Final = server
        self._network = network
        self._receiver: Receiver | None = None
        self._up: deque[tuple[int, Call[Any]]] = deque()
        self._down: deque[Answer | Event | _Hangup] = deque()
        self._hung_up = False  # by the server

    def listen(self, receiver: Receiver) -> None:
        """From now on, tell what comes in."""
        self._receiver = receiver

    def send(self, xid: int, call: Call[Any]) -> None:
        """Send a call on its way."""
        self._up.append((xid, call))
        asyncio.get_running_loop().call_later(self._network.latency(), self.arrive)

    def read(self, call: Call[T], body: Body) -> T:
        """The fake makes values, not bytes; one that is an error is raised."""
        if isinstance(body, Exception):
            raise body
        return body  # type: ignore[no-any-return]

    def drop(self) -> None:
        """Break off. How many of the calls on their way still arrive is up to chance."""
        self._receiver = None
        survivors = self._network.randomness.randint(0, len(self._up))
        while len(self._up) > survivors:
            self._up.pop()

    async def wait_closed(self) -> None:
        """Nothing is left of it at any time."""

    # --- the server's side -----------------------------------------------------------------------

    def arrive(self) -> None:
        """The next call has arrived. Whichever timer says so: they keep their order."""
        if self._hung_up or not self._up:
            return
        if self.server.frozen:
            self.server.hold(self)
            return
        self.server.handle(self, *self._up.popleft())

    def tell(self, message: Answer | Event) -> None:
        """Send an answer or an event back."""
        if not self._hung_up:
            self._down.append(message)
            asyncio.get_running_loop().call_later(self._network.latency(), self._deliver)

    def hang_up(self, reason: str, *, after_answers: bool = False) -> None:
        """End it. How many of the answers on their way still arrive is up to chance."""
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
        if not self._down:
            return
        message, receiver = self._down.popleft(), self._receiver
        if receiver is None:
            return
        if isinstance(message, Answer):
            receiver.answered(*message)
        elif isinstance(message, Event):
            receiver.notified(message)
        else:
            receiver.lost(message.reason)
