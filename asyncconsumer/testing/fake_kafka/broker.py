"""One fake broker: whether it runs and can be reached, and what it does with requests."""

import asyncio
import enum
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from asyncconsumer.errors import ConnectFailed
from asyncconsumer.testing.fake_kafka.sessions import Sessions
from asyncconsumer.testing.fake_kafka.state import Place, View
from asyncconsumer.testing.fake_kafka.transport import Asked, FakeTransport
from asyncconsumer.types import Address

if TYPE_CHECKING:
    from asyncconsumer.config import ConnectionConfig
    from asyncconsumer.net.connection import BrokerConnection


class State(enum.Enum):
    """What a broker does."""

    UP = "it answers"
    FROZEN = "it does nothing; the system below it still takes connections and bytes"
    DOWN = "nobody listens"


class Request(NamedTuple):
    """A request to be answered: by whom, what it says, and over which wire."""

    broker: "FakeBroker"
    asked: Asked
    start: int  # where its body begins
    code: int  # of the error that a test wants in the answer; 0 for the truth
    wire: FakeTransport
    header: bytes  # what an answer begins with, after its correlation id

    def answer(self, body: bytes, *, pause: float = 0.0) -> None:
        """Send the answer; `pause` is for how long the next request is not looked at."""
        self.wire.answer(self.header + body, pause=pause)


class Handler(NamedTuple):
    """How requests of one API are answered, and in which versions."""

    versions: range
    flexible_since: int
    answer: Callable[[Request], None]


class Rules:
    """What holds for all brokers of a cluster."""

    def __init__(
        self,
        randomness: Random,
        handlers: Mapping[int, Handler],
        *,
        latency: tuple[float, float],
        rack_aware: bool,
    ) -> None:
        self.randomness = randomness
        self.handlers = handlers
        self.latency = latency
        self.rack_aware = rack_aware
        self.troubles: list[tuple[int, int, int | None]] = []

    def versions(self) -> dict[int, tuple[int, int]]:
        """The first and the last version of each API, as brokers tell in ApiVersions."""
        return {key: (one.versions[0], one.versions[-1]) for key, one in self.handlers.items()}

    def trouble(self, api: int, node_id: int) -> int:
        """The error code that is due for a request, or 0."""
        for at, (key, code, node) in enumerate(self.troubles):
            if key == api and node in (None, node_id):
                del self.troubles[at]
                return code
        return 0


class FakeBroker:
    """A broker of a FakeCluster, which has the verbs that change it."""

    def __init__(self, place: Place, rules: Rules, view: View, sessions: Sessions) -> None:
        self.place = place
        self.rules = rules
        self.view = view  # the cluster's own, or a copy while this broker is out of date
        self.sessions = sessions
        self.state = State.UP
        self.reachable = True
        self.slowness = 0.0
        self.throttled: list[float] = []  # for how long, each of the next fetches
        self.requests: Counter[int] = Counter()  # so far, by API
        self._wires: dict[FakeTransport, None] = {}
        self._postponed: list[Callable[[], None]] = []
        self._door = asyncio.Event()

    @property
    def node_id(self) -> int:
        """Its number in the cluster."""
        return self.place.node_id

    @property
    def running(self) -> bool:
        """Whether it handles requests."""
        return self.state is State.UP

    @property
    def connections(self) -> int:
        """How many clients' connections are open."""
        return len(self._wires)

    def latency(self) -> float:
        """Seconds that a frame to or from it is on its way."""
        low, high = self.rules.latency
        return low + (high - low) * self.rules.randomness.random() + self.slowness

    # --- connections -----------------------------------------------------------------------------

    async def accept(
        self, address: Address, config: "ConnectionConfig", connection: "BrokerConnection"
    ) -> None:
        """Connect: what TCP and ApiVersions do, or fail, or take too long."""
        allowed = config.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(allowed):
                await asyncio.sleep(2 * self.latency())
                while self.state is State.FROZEN or not self.reachable:
                    self._door.clear()
                    await self._door.wait()
        except TimeoutError as error:
            raise ConnectFailed(address, f"no connection within {allowed:g} s") from error
        if self.state is State.DOWN or self.place.address != address:
            raise ConnectFailed(address, "[Errno 111] Connection refused")
        self._wires[FakeTransport(connection, self)] = None

    def left(self, wire: FakeTransport) -> None:
        """The client closed a wire."""
        self._wires.pop(wire, None)

    def cut(self, *, politely: bool = False) -> None:
        """End all connections."""
        for wire in list(self._wires):
            wire.end(politely=politely)
        if self.reachable:
            self._wires.clear()

    def turn(self, state: State) -> None:
        """Go up, freeze or go down, with what follows from it."""
        self.state = state
        self._door.set()
        if state is State.DOWN:
            self._postponed.clear()
            self.sessions.clear()
            self.cut()
        elif state is State.UP:
            postponed, self._postponed = self._postponed, []
            for step in postponed:
                step()
            for wire in list(self._wires):
                wire.serve()

    def link(self, *, there: bool) -> None:
        """Lose or find the way to the clients; what is on its way waits."""
        self.reachable = there
        self._door.set()
        if there:
            for wire in list(self._wires):
                wire.release()

    # --- requests --------------------------------------------------------------------------------

    def when_running(self, step: Callable[[], None]) -> None:
        """Do something now, or as soon as the broker is no longer frozen."""
        if self.running:
            step()
        else:
            self._postponed.append(step)

    def handle(self, asked: Asked, wire: FakeTransport) -> None:
        """Answer a request, now or later."""
        self.requests[asked.api] += 1
        handler = self.rules.handlers[asked.api]
        code = self.rules.trouble(asked.api, self.node_id) if self.rules.troubles else 0
        if asked.version >= handler.flexible_since:
            request = Request(self, asked, asked.start + 1, code, wire, b"\0")
        else:
            request = Request(self, asked, asked.start, code, wire, b"")
        handler.answer(request)
