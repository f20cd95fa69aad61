"""One connection to the fake: calls and answers take their time, keep their order, and get lost."""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from asyncconsumer.zookeeper.requests import Call, WatchNotification
from asyncconsumer.zookeeper.transport import Body, ConnectResponse, Receiver

T = TypeVar("T")


class Answer(NamedTuple):
    """What a server sends back."""

    xid: int
    zxid: int
    error: int
    body: Any


class _Hangup(NamedTuple):
    reason: str


class Network:
    """What lies between one client and the servers: messages take their time, or do not pass."""

    def __init__(self, randomness: Random, least: float, most: float) -> None:
        self.randomness: Final = randomness
        self._least, self._most = least, most
        self._open = asyncio.Event()
        self._open.set()
        self._held: list[Callable[[], None]] = []

    def latency(self) -> float:
        """Seconds that a message takes."""
        return self._least + (self._most - self._least) * self.randomness.random()

    async def cross(self) -> None:
        """Be a message on its way."""
        await asyncio.sleep(self.latency())
        await self._open.wait()

    def passes(self, again: Callable[[], None]) -> bool:
        """Whether a message arrives now; if not, `again` is called when it can."""
        if self._open.is_set():
            return True
        self._held.append(again)
        return False

    def isolate(self) -> None:
        """Let nothing pass."""
        self._open.clear()

    def rejoin(self) -> None:
        """Let what was held, and all that follows, pass."""
        self._open.set()
        held, self._held = self._held, []
        for again in held:
            again()


class Server(Protocol):
    """The end that takes calls."""

    @property
    def frozen(self) -> bool:
        """Whether it takes none for now."""

    def handle(self, line: "FakeLine", xid: int, call: Call[Any]) -> None:
        """A call has arrived."""

    def hold(self, act: Callable[[], None]) -> None:
        """It is frozen: do this when it is not."""


class FakeLine:
    """A line as `zk.line.Line` wants it. Nothing in it is a task."""

    def __init__(self, server: Server, welcome: ConnectResponse, network: Network) -> None:
        self.welcome: Final = welcome
        self.server: Final = server
        self._network = network
        self._receiver: Receiver | None = None
        self._up: deque[tuple[int, Call[Any]]] = deque()
        self._down: deque[Answer | WatchNotification | _Hangup] = deque()
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
        if self._hung_up or not self._up or not self._network.passes(self.arrive):
            return
        if self.server.frozen:
            self.server.hold(self.arrive)
            return
        self.server.handle(self, *self._up.popleft())

    def tell(self, message: Answer | WatchNotification) -> None:
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
