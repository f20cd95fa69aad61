"""A fake broker: its process state, its reachability and its request handling."""

import asyncio
import enum
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from asyncconsumer.errors import ConnectFailed
from asyncconsumer.testing.fake_kafka.sessions import Sessions
from asyncconsumer.testing.fake_kafka.state import BrokerEndpoint, View
from asyncconsumer.testing.fake_kafka.transport import FakeTransport, ReceivedRequest
from asyncconsumer.types import Address

if TYPE_CHECKING:
    from asyncconsumer.config import ConnectionConfig
    from asyncconsumer.net.connection import BrokerConnection


class State(enum.Enum):
    """The state of a broker's process. Each value is a description of the state."""

    UP = "it handles requests"
    FROZEN = "it handles no request; its system still accepts connections and bytes"
    DOWN = "it accepts no connection"


class Fate(enum.Enum):
    """A fault that a test injects into a request. Each value is a description of the fault."""

    LOST_BEFORE = "the connection breaks before the request is handled"
    LOST_AFTER = "the connection breaks before the response is sent"


class Request(NamedTuple):
    """A request, the broker that handles it, and the transport that received it."""

    broker: "FakeBroker"
    received: ReceivedRequest
    start: int  # the index of the request's body in the received data
    code: int  # an error code that a test injects; 0 for none
    transport: FakeTransport
    header: bytes  # the response header after the correlation id
    loses_answer: bool

    def answer(self, body: bytes, *, pause: float = 0.0) -> None:
        """Send the response `body`, or break the connection if a test injected `Fate.LOST_AFTER`.

        `pause` is the delay in seconds before the next request of the connection is handled.
        """
        if self.loses_answer:
            self.broker.drop(self.transport)
        else:
            self.transport.answer(self.header + body, pause=pause)


class Handler(NamedTuple):
    """A handler for the requests of one API, with the versions that it supports."""

    versions: range
    flexible_since: int
    answer: Callable[[Request], None]


class Rules:
    """The request handlers, settings and injected faults that all brokers of a cluster share."""

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
        self.fates: list[tuple[int, Fate]] = []
        self.create_topic: Callable[[str], object] | None = None  # for missing topics

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return the first and the last supported version of each API, by API key."""
        return {
            key: (handler.versions[0], handler.versions[-1])
            for key, handler in self.handlers.items()
        }

    def trouble(self, api: int, node_id: int) -> int:
        """Return and remove the next injected error code of an API at a broker, or return 0.

        `api` is the API key.
        """
        for index, (key, code, node) in enumerate(self.troubles):
            if key == api and node in (None, node_id):
                del self.troubles[index]
                return code
        return 0

    def fate(self, api: int) -> Fate | None:
        """Return and remove the next injected `Fate` of an API, or return None.

        `api` is the API key.
        """
        for index, (key, fate) in enumerate(self.fates):
            if key == api:
                del self.fates[index]
                return fate
        return None


class FakeBroker:
    """A broker of a FakeCluster. Tests inject faults through the methods of the cluster."""

    def __init__(
        self, endpoint: BrokerEndpoint, rules: Rules, view: View, sessions: Sessions
    ) -> None:
        self.endpoint = endpoint
        self.rules = rules
        self.view = view  # the view of the cluster, or a copy of it while this broker is stale
        self.sessions = sessions
        self.state = State.UP
        self.reachable = True
        self.slowness = 0.0
        self.throttled: list[float] = []  # the throttle time of each of the next fetches
        self.requests: Counter[int] = Counter()  # the number of requests, by API
        self._wires: dict[FakeTransport, None] = {}
        self._postponed: list[Callable[[], None]] = []
        self._door = asyncio.Event()

    @property
    def node_id(self) -> int:
        """The id of the broker."""
        return self.endpoint.node_id

    @property
    def running(self) -> bool:
        """Whether the broker handles requests."""
        return self.state is State.UP

    @property
    def connections(self) -> int:
        """The number of open client connections."""
        return len(self._wires)

    def latency(self) -> float:
        """Return the latency of the next frame, in seconds."""
        low, high = self.rules.latency
        return low + (high - low) * self.rules.randomness.random() + self.slowness

    # --- connections -----------------------------------------------------------------------------

    async def accept(
        self, address: Address, config: "ConnectionConfig", connection: "BrokerConnection"
    ) -> None:
        """Accept the connection of a client to `address`, after a latency.

        Raise ConnectFailed if the broker is down or has another address. If the broker is frozen or
        unreachable, wait for `connect_timeout_ms` before raising it.
        """
        allowed = config.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(allowed):
                await asyncio.sleep(2 * self.latency())
                while self.state is State.FROZEN or not self.reachable:
                    self._door.clear()
                    await self._door.wait()
        except TimeoutError as error:
            raise ConnectFailed(address, f"no connection within {allowed:g} s") from error
        if self.state is State.DOWN or self.endpoint.address != address:
            raise ConnectFailed(address, "[Errno 111] Connection refused")
        self._wires[FakeTransport(connection, self)] = None

    def on_disconnect(self, transport: FakeTransport) -> None:
        """Remove a transport from the open connections, because the client has closed it."""
        self._wires.pop(transport, None)

    def drop(self, transport: FakeTransport) -> None:
        """Close the connection of `transport` with an error, as seen by the client."""
        self.on_disconnect(transport)
        transport.end()

    def cut(self, *, politely: bool = False) -> None:
        """Close all connections with an error, or without an error if `politely`."""
        for transport in list(self._wires):
            transport.end(politely=politely)
        if self.reachable:
            self._wires.clear()

    def turn(self, state: State) -> None:
        """Set the state of the broker's process.

        DOWN closes all connections and fetch sessions. UP handles the requests that arrived while
        the broker was frozen.
        """
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
            for transport in list(self._wires):
                transport.serve()

    def link(self, *, reachable: bool) -> None:
        """Break or restore the link to the clients. A broken link delays frames until restored."""
        self.reachable = reachable
        self._door.set()
        if reachable:
            for transport in list(self._wires):
                transport.release()

    # --- requests --------------------------------------------------------------------------------

    def when_running(self, step: Callable[[], None]) -> None:
        """Call `step` now. If the broker is frozen, call it when the broker is thawed.

        If a frozen broker goes down, `step` is never called.
        """
        if self.running:
            step()
        else:
            self._postponed.append(step)

    def handle(self, received: ReceivedRequest, transport: FakeTransport) -> None:
        """Pass a request to the handler of its API, which sends the response now or later."""
        self.requests[received.api] += 1
        handler = self.rules.handlers[received.api]
        code = self.rules.trouble(received.api, self.node_id) if self.rules.troubles else 0
        fate = self.rules.fate(received.api) if self.rules.fates else None
        if fate is Fate.LOST_BEFORE:
            self.drop(transport)
            return
        lost = fate is Fate.LOST_AFTER
        if received.version >= handler.flexible_since:
            request = Request(self, received, received.start + 1, code, transport, b"\0", lost)
        else:
            request = Request(self, received, received.start, code, transport, b"", lost)
        handler.answer(request)
