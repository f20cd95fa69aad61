"""A cluster of fake brokers for virtual time, on which the production code runs unchanged."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any, Final

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConfigError, ConnectFailed
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.testing.fake_kafka.broker import FakeBroker, Fate, Handler, Rules, State
from asyncconsumer.testing.fake_kafka.fetching import FETCH
from asyncconsumer.testing.fake_kafka.metadata import METADATA
from asyncconsumer.testing.fake_kafka.offsets import EPOCH_ENDS, LIST_OFFSETS
from asyncconsumer.testing.fake_kafka.sessions import Sessions
from asyncconsumer.testing.fake_kafka.state import BrokerEndpoint, View
from asyncconsumer.testing.fake_kafka.topics import Topics
from asyncconsumer.types import Address

HANDLERS: Final[Mapping[int, Handler]] = {
    1: FETCH,
    2: LIST_OFFSETS,
    3: METADATA,
    23: EPOCH_ENDS,
}
_PORT: Final = 9092


class FakeCluster(Topics, AsyncResource):
    """A cluster with the brokers 1 to `brokers`. Pass its method `open` as the opener of a client.

    All methods for faults are plain functions that take effect at once, so a test can call them at
    any moment. The client sees the effect after a latency.

    `latency` is the minimum and the maximum latency of a frame, in seconds. `failover` is the time
    in seconds until the cluster notices a dead broker. `racks` has one rack per broker. With racks,
    a leader redirects clients to the replica in their rack. `versions` has the last supported
    version of an API. `sessions` is the maximum number of fetch sessions of a broker. All random
    numbers come from `randomness`.
    """

    def __init__(
        self,
        randomness: Random,
        *,
        brokers: int = 3,
        latency: tuple[float, float] = (0.0002, 0.002),
        failover: float = 1.0,
        racks: Sequence[str] | None = None,
        versions: Mapping[int, int] | None = None,
        sessions: int = 1000,
        handlers: Mapping[int, Handler] = HANDLERS,
        view: View | None = None,
    ) -> None:
        super().__init__(randomness, view or View())
        if racks is not None and len(racks) != brokers:
            raise ConfigError(f"{len(racks)} `racks` for {brokers} brokers: pass one rack for each")
        spoken = _spoken(handlers, versions or {})
        rules = Rules(randomness, spoken, latency=latency, rack_aware=racks is not None)
        self.failover = failover
        self.brokers: dict[int, FakeBroker] = {}
        for node in range(1, brokers + 1):
            rack = None if racks is None else racks[node - 1]
            endpoint = BrokerEndpoint(node, Address(f"broker-{node}", _PORT), rack)
            self.view.endpoints[node] = endpoint
            self.brokers[node] = FakeBroker(
                endpoint, rules, self.view, Sessions(randomness, sessions)
            )
        self._rules = rules

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self.close)

    def close(self) -> None:
        """Close all connections and cancel all timers."""
        for broker in self.brokers.values():
            broker.link(reachable=True)  # or clients would not see the end
            broker.turn(State.DOWN)

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers, `host:port,...`."""
        return ",".join(str(broker.endpoint.address) for broker in self.brokers.values())

    def config(self, **options: Any) -> ConnectionConfig:  # noqa: ANN401 - the configuration checks them
        """Return a ConnectionConfig with this cluster's addresses and with `options`."""
        return ConnectionConfig(bootstrap_servers=self.bootstrap_servers, **options)

    async def open(self, address: Address, config: ConnectionConfig) -> BrokerConnection:
        """Open a connection to the fake broker at `address`.

        `open_connection` does the same over a network.
        """
        for broker in self.brokers.values():
            if broker.endpoint.address == address:
                connection = BrokerConnection(address, config)
                connection.versions = self._rules.versions()
                await broker.accept(address, config, connection)
                return connection
        await asyncio.sleep(self._rules.latency[1])
        raise ConnectFailed(address, "[Errno 111] Connection refused")

    # --- brokers ---------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """Kill a broker.

        Its connections break. Other brokers become leaders after the failover time.
        """
        broker = self._broker(node_id)
        broker.turn(State.DOWN)
        asyncio.get_running_loop().call_later(self.failover, self._notice, broker)

    def start(self, node_id: int) -> None:
        """Start a broker that was killed. Its replicas are in sync at once."""
        broker = self._broker(node_id)
        if broker.state is State.DOWN:
            broker.view = self.view
            self.view.endpoints[node_id] = broker.endpoint
            self.regain_replica(node_id)
            broker.turn(State.UP)

    def freeze(self, node_id: int) -> None:
        """Freeze a running broker. It answers no request until `thaw` is called."""
        broker = self._broker(node_id)
        if broker.state is State.UP:
            broker.turn(State.FROZEN)

    def thaw(self, node_id: int) -> None:
        """Resume a frozen broker, which then handles the requests that have arrived."""
        broker = self._broker(node_id)
        if broker.state is State.FROZEN:
            broker.turn(State.UP)

    def black_hole(self, node_id: int) -> None:
        """Deliver no frame to or from a broker until `restore`. The broker keeps running."""
        self._broker(node_id).link(reachable=False)

    def restore(self, node_id: int) -> None:
        """Restore the link to a broker. Delayed frames arrive, because TCP retransmits them."""
        self._broker(node_id).link(reachable=True)

    def reset_connections(self, node_id: int, *, politely: bool = False) -> None:
        """Reset all connections to a broker. With `politely`, close them without an error."""
        self._broker(node_id).cut(politely=politely)

    def change_address(self, node_id: int, address: Address | None = None) -> Address:
        """Change the address of a broker, by default to the next port. Return the new address.

        The connections of the broker break.
        """
        broker = self._broker(node_id)
        host, port = broker.endpoint.address
        address = address or Address(host, port + 1)
        broker.endpoint = broker.endpoint._replace(address=address)
        if node_id in self.view.endpoints:
            self.view.endpoints[node_id] = broker.endpoint
        broker.cut()
        return address

    def drop_sessions(self, node_id: int) -> None:
        """Remove all fetch sessions of a broker, as if newer sessions had evicted them."""
        self._broker(node_id).sessions.clear()

    def slow(self, node_id: int, seconds: float) -> None:
        """Add `seconds` of latency to each frame to or from a broker. Pass 0 to end the fault."""
        self._broker(node_id).slowness = seconds

    def throttle(self, node_id: int, seconds: float) -> None:
        """Answer the next Fetch request to a broker without records and with this throttle time."""
        self._broker(node_id).throttled.append(seconds)

    def go_stale(self, node_id: int) -> None:
        """Stop the propagation of cluster changes to a broker until `catch_up` is called.

        The broker returns old metadata, still acts as the leader of partitions that moved, and does
        not know new partitions. As a replica it lags.
        """
        self._broker(node_id).view = self.view.copy()

    def catch_up(self, node_id: int) -> None:
        """Give a stale broker the current cluster state, and check its waiting fetches."""
        broker = self._broker(node_id)
        old, broker.view = broker.view, self.view
        for view in (old, self.view):
            view.changed()

    def fail_next(self, api: int, code: int, *, node_id: int | None = None, times: int = 1) -> None:
        """Answer the next `times` requests of an API with an error code, at one broker or at any.

        `api` is the API key. The code is set for each partition or topic of the response, or for
        the whole response if it is an error code of fetch sessions.
        """
        self._rules.troubles += [(api, code, node_id)] * times

    def forget_troubles(self) -> None:
        """Remove the error codes that `fail_next` injected."""
        self._rules.troubles.clear()

    def lose_next(self, api: int, fate: Fate) -> None:
        """Break the connection at the next request of an API, whose key is `api`.

        `fate` says whether the connection breaks before or after the request is handled.
        """
        self._rules.fates.append((api, fate))

    def forget_fates(self) -> None:
        """Remove the faults that `lose_next` injected."""
        self._rules.fates.clear()

    def _broker(self, node_id: int) -> FakeBroker:
        try:
            return self.brokers[node_id]
        except KeyError:
            raise ConfigError(
                f"the fake cluster has no node {node_id}: its nodes are 1 to {len(self.brokers)}"
            ) from None

    def _notice(self, broker: FakeBroker) -> None:
        if broker.state is State.DOWN:
            self.lose_replica(broker.node_id)


def _spoken(handlers: Mapping[int, Handler], last: Mapping[int, int]) -> dict[int, Handler]:
    """Return the handlers by API key, limited to the versions up to those in `last`.

    `last` has the last version of some APIs, by API key. An API without a remaining version is left
    out.
    """
    spoken = {}
    for key, handler in handlers.items():
        versions = range(handler.versions[0], last.get(key, handler.versions[-1]) + 1)
        if versions:
            spoken[key] = handler._replace(versions=versions)
    return spoken
