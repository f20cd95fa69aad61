"""A cluster of fake brokers for virtual time, on which the production code runs unchanged."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConfigError, ConnectFailed
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.testing.fake_kafka.broker import FakeBroker, Handler, Rules, State
from asyncconsumer.testing.fake_kafka.fetching import FETCH
from asyncconsumer.testing.fake_kafka.metadata import METADATA
from asyncconsumer.testing.fake_kafka.offsets import EPOCH_ENDS, LIST_OFFSETS
from asyncconsumer.testing.fake_kafka.sessions import Sessions
from asyncconsumer.testing.fake_kafka.state import Place, View
from asyncconsumer.testing.fake_kafka.topics import Topics
from asyncconsumer.types import Address

HANDLERS: Final[Mapping[int, Handler]] = {
    1: FETCH,
    2: LIST_OFFSETS,
    3: METADATA,
    23: EPOCH_ENDS,
}
_PORT: Final = 9092


class FakeCluster(Topics):
    """Brokers 1 to `brokers`; hand `open` to `Brokers` or `Session` as their opener.

    All verbs are plain functions that take effect at once, so that a schedule can call them at
    any moment; what they cause reaches the client after a latency. `latency` is the least and the
    most seconds that a frame is on its way, `failover` how long a death goes unnoticed, `racks`
    one for each broker (with them a leader sends clients to the replica in theirs), `versions`
    the last version of an API that brokers speak, `sessions` how many fetch sessions a broker
    keeps. Randomness comes from `randomness` alone.
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
    ) -> None:
        super().__init__(randomness, View())
        if racks is not None and len(racks) != brokers:
            raise ConfigError(f"{len(racks)} racks for {brokers} brokers: give each one")
        spoken = _spoken(handlers, versions or {})
        rules = Rules(randomness, spoken, latency=latency, rack_aware=racks is not None)
        self.failover = failover
        self.brokers: dict[int, FakeBroker] = {}
        for node in range(1, brokers + 1):
            rack = None if racks is None else racks[node - 1]
            place = Place(node, Address(f"broker-{node}", _PORT), rack)
            self.view.places[node] = place
            self.brokers[node] = FakeBroker(place, rules, self.view, Sessions(randomness, sessions))
        self._rules = rules

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and everything that waits."""
        for broker in self.brokers.values():
            broker.link(there=True)  # or those beyond a black hole would not see it
            broker.turn(State.DOWN)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, `host:port,...`."""
        return ",".join(str(broker.place.address) for broker in self.brokers.values())

    def config(self, **options: Any) -> ConnectionConfig:  # noqa: ANN401 - it checks them
        """A ConnectionConfig for this cluster."""
        return ConnectionConfig(bootstrap_servers=self.bootstrap_servers, **options)

    async def open(self, address: Address, config: ConnectionConfig) -> BrokerConnection:
        """Open a connection, as `open_connection` does over a network."""
        for broker in self.brokers.values():
            if broker.place.address == address:
                connection = BrokerConnection(address, config)
                connection.versions = self._rules.versions()
                await broker.accept(address, config, connection)
                return connection
        await asyncio.sleep(self._rules.latency[1])
        raise ConnectFailed(address, "[Errno 111] Connection refused")

    # --- brokers ---------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """End a broker at once. Its connections break; leaders change once that is noticed."""
        broker = self._broker(node_id)
        broker.turn(State.DOWN)
        asyncio.get_running_loop().call_later(self.failover, self._notice, broker)

    def start(self, node_id: int) -> None:
        """Start a broker that was killed; it is in sync at once."""
        broker = self._broker(node_id)
        if broker.state is State.DOWN:
            broker.view = self.view
            self.view.places[node_id] = broker.place
            self.regain_replica(node_id)
            broker.turn(State.UP)

    def freeze(self, node_id: int) -> None:
        """Have a broker do nothing. Connections stay, and even new ones begin, with no answer."""
        broker = self._broker(node_id)
        if broker.state is State.UP:
            broker.turn(State.FROZEN)

    def thaw(self, node_id: int) -> None:
        """Have a frozen broker go on where it was."""
        broker = self._broker(node_id)
        if broker.state is State.FROZEN:
            broker.turn(State.UP)

    def black_hole(self, node_id: int) -> None:
        """Lose the way to a broker: it runs, but nothing gets through in either direction."""
        self._broker(node_id).link(there=False)

    def restore(self, node_id: int) -> None:
        """Find the way again; what was on it arrives, as TCP sends it again."""
        self._broker(node_id).link(there=True)

    def reset_connections(self, node_id: int, *, politely: bool = False) -> None:
        """Break all connections to a broker; `politely` closes them as a broker that stops does."""
        self._broker(node_id).cut(politely=politely)

    def change_address(self, node_id: int, address: Address | None = None) -> Address:
        """Move a broker, to a new port if nothing is said; its connections break."""
        broker = self._broker(node_id)
        host, port = broker.place.address
        address = address or Address(host, port + 1)
        broker.place = broker.place._replace(address=address)
        if node_id in self.view.places:
            self.view.places[node_id] = broker.place
        broker.cut()
        return address

    def drop_sessions(self, node_id: int) -> None:
        """Have a broker forget its fetch sessions."""
        self._broker(node_id).sessions.clear()

    def slow(self, node_id: int, seconds: float) -> None:
        """Have each frame to and from a broker take so much longer; 0 ends it."""
        self._broker(node_id).slowness = seconds

    def throttle(self, node_id: int, seconds: float) -> None:
        """Have a broker answer its next fetch with a throttle time and no records."""
        self._broker(node_id).throttled.append(seconds)

    def go_stale(self, node_id: int) -> None:
        """Let a broker learn nothing new: not who leads, not what is written, until `catch_up`.

        It tells old metadata, takes itself for a leader that it no longer is and denies what it
        does not know yet. As a replica it is one that lags behind.
        """
        self._broker(node_id).view = self.view.copy()

    def catch_up(self, node_id: int) -> None:
        """Let a stale broker learn everything that it missed."""
        broker = self._broker(node_id)
        old, broker.view = broker.view, self.view
        for view in (old, self.view):
            view.changed()

    def fail_next(self, api: int, code: int, *, node_id: int | None = None, times: int = 1) -> None:
        """Have the next requests of an API answered with an error code, by one node or by any.

        It is said of each partition or topic asked about; codes of fetch sessions are said of the
        whole answer.
        """
        self._rules.troubles += [(api, code, node_id)] * times

    def forget_troubles(self) -> None:
        """Have everything answered well again."""
        self._rules.troubles.clear()

    def _broker(self, node_id: int) -> FakeBroker:
        try:
            return self.brokers[node_id]
        except KeyError:
            raise ConfigError(
                f"no node {node_id} in the fake cluster: there are 1 to {len(self.brokers)}"
            ) from None

    def _notice(self, broker: FakeBroker) -> None:
        if broker.state is State.DOWN:
            self.lose_replica(broker.node_id)


def _spoken(handlers: Mapping[int, Handler], last: Mapping[int, int]) -> dict[int, Handler]:
    """The handlers with the versions that brokers speak, without those of which they speak none."""
    spoken = {}
    for key, one in handlers.items():
        versions = range(one.versions[0], last.get(key, one.versions[-1]) + 1)
        if versions:
            spoken[key] = one._replace(versions=versions)
    return spoken
