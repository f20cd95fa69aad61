"""The connection pool. It has one connection per address and kind of traffic, opened on demand."""

import asyncio
import enum
import itertools
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final, NamedTuple, Protocol

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aiokafka_parts import Request, Response
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ClosedError, ConsumerError, HostNotAllowed
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.node import BrokerNode
from asyncconsumer.types import Address

_KEPT_SECONDS: Final = 600.0  # how long the state of an unused node is kept
_SUSPECT_SECONDS: Final = 30.0  # a suspicion ends after this time, because no request may clear it


class Traffic(enum.Enum):
    """A kind of traffic, with connections of its own.

    Requests of different kinds do not block each other.
    """

    CONTROL = "control"  # metadata, offsets
    FETCH = "fetch"  # waits at the broker for records
    GROUP = "group"  # commits, which must not be delayed
    JOIN = "join"  # waits at the broker for the other members of a group
    HEARTBEAT = "heartbeat"  # must not wait for other requests
    PRODUCE = "produce"  # waits at the broker until replicas have the records


class BrokerOpener(Protocol):
    """A function that opens connections. The default is `open_connection`."""

    async def __call__(self, address: Address, config: ConnectionConfig) -> BrokerConnection:
        """Return a connection that is ready for requests. Raise a `ConsumerError` if that fails."""


@dataclass(slots=True)
class ConnectionCounts:
    """The numbers of connections that were opened, broke, and could not be opened."""

    opened: int = 0
    lost: int = 0
    failed: int = 0

    def count_opened(self) -> None:
        """Count a connection that was opened."""
        self.opened += 1

    def count_lost(self) -> None:
        """Count a connection that broke."""
        self.lost += 1

    def count_failed(self) -> None:
        """Count a failed attempt to open a connection."""
        self.failed += 1


class _PoolKey(NamedTuple):
    """The key of a connection: address, kind of traffic and slot."""

    address: Address
    traffic: Traffic
    slot: int


class _Open(NamedTuple):
    connection: BrokerConnection
    since: float


class BrokerPool(AsyncResource):
    """The connections of one client, open for its ``async with`` block.

    A connection is opened on first use, once for all callers. If that fails, all callers get the
    error, and each decides whether to retry. Later attempts to connect to this address wait with a
    growing backoff. The pool does not know broker ids: when the address of a broker changes,
    callers must pass the new one.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        randomness: Random,
        opener: BrokerOpener = open_connection,
    ) -> None:
        self.config: Final = config
        self.counts: Final = ConnectionCounts()
        self._randomness = randomness
        self._opener = opener
        self._nodes: dict[Address, BrokerNode] = {}
        self._suspects: dict[Address, float] = {}  # the loop time until which a broker is suspect
        self._opened: dict[_PoolKey, _Open] = {}
        self._retired: list[BrokerConnection] = []
        self._openings: dict[_PoolKey, asyncio.Task[BrokerConnection | ConsumerError]] = {}
        self._slots = itertools.count(1)
        self._scope = Scope("brokers")

    async def _open(self, stack: AsyncExitStack) -> None:
        self._scope.check_new()
        stack.push_async_callback(self._close_connections)
        await stack.enter_async_context(self._scope)

    async def _close_connections(self) -> None:
        connections = [*self._retired, *(opened.connection for opened in self._opened.values())]
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    async def request(
        self, address: Address, traffic: Traffic, message: Request, *, timeout: float | None = None
    ) -> Response:
        """Send a request over the connection for this kind of traffic.

        Return the decoded response.
        """
        connection = await self.connection(address, traffic)
        return await connection.request(message, timeout=timeout)

    async def connection(
        self, address: Address, traffic: Traffic, *, slot: int = 0
    ) -> BrokerConnection:
        """Return the connection for a kind of traffic. If none is open, open one, with backoff.

        A broker answers the requests of one connection in order, and a Fetch request may wait long.
        A caller that must not wait for others uses a slot of its own (`new_slot`), and closes it
        afterwards.
        """
        self._scope.check_open()
        key = _PoolKey(address, traffic, slot)
        if (opened := self._opened.get(key)) is not None:
            if opened.connection.usable:
                return opened.connection
            self._forget(key, opened)
        if not self.config.allows(address):
            raise HostNotAllowed(address, "the host is not in `allowed_hosts`")
        opening = self._openings.get(key)
        if opening is None:
            name = f"open {address} for {traffic.value}"
            opening = self._openings[key] = self._scope.start(self._connect(key), name)
        return await self._scope.outcome(opening)

    def new_slot(self) -> int:
        """Return the number of an unused slot, for connections of one caller.

        See `connection`. Slot 0 is shared by all callers.
        """
        return next(self._slots)

    def close_slot(self, slot: int) -> None:
        """Close the connections of a slot (see `connection`). Their requests in flight fail."""
        for key, opening in self._openings.items():
            if key.slot == slot:
                opening.cancel()
        for key in [key for key in self._opened if key.slot == slot]:
            opened = self._opened.pop(key)
            opened.connection.close()
            self._keep_retired(opened.connection)

    def wait_before(self, address: Address) -> float:
        """Return the seconds until the next attempt to connect to an address is allowed, or 0."""
        return self._nodes[address].wait() if address in self._nodes else 0.0

    def mark_suspect(self, address: Address) -> None:
        """Mark a broker as suspect for 30 s, because its response is overdue.

        Callers that can choose a broker prefer others.
        """
        now = asyncio.get_running_loop().time()
        self._suspects = {
            suspect: until for suspect, until in self._suspects.items() if until > now
        }
        self._suspects[address] = now + _SUSPECT_SECONDS

    def clear_suspect(self, address: Address) -> None:
        """Remove the mark of `mark_suspect` from a broker, because it responded."""
        self._suspects.pop(address, None)

    def preference_key(self, address: Address) -> tuple[bool, float]:
        """Return a sort key for addresses. The broker with the smallest key is asked first."""
        suspect = self._suspects.get(address, -inf) > asyncio.get_running_loop().time()
        return suspect, self.wait_before(address)

    async def _connect(self, key: _PoolKey) -> BrokerConnection | ConsumerError:
        node = self._node(key.address)
        try:
            async with node.attempt():
                connection = await self._opener(key.address, self.config)
        except ConsumerError as error:
            self.counts.count_failed()
            return error
        else:
            self.counts.count_opened()
            self._opened[key] = _Open(connection, asyncio.get_running_loop().time())
            return connection
        finally:
            del self._openings[key]

    def _node(self, address: Address) -> BrokerNode:
        """Return the BrokerNode of an address.

        When a new one is created, BrokerNodes that are no longer used are dropped.
        """
        now = asyncio.get_running_loop().time()
        if address not in self._nodes:
            used = {key.address for key in (*self._opened, *self._openings)}
            self._nodes = {
                other: node
                for other, node in self._nodes.items()
                if other in used or node.used_at >= now - _KEPT_SECONDS
            }
            self._nodes[address] = BrokerNode(self.config, self._randomness)
        node = self._nodes[address]
        node.used_at = now
        return node

    def _forget(self, key: _PoolKey, opened: _Open) -> None:
        del self._opened[key]
        if opened.connection.ending is None:
            opened.connection.retire()  # the SASL session of this connection is about to expire
            self._keep_retired(opened.connection)
        elif not isinstance(opened.connection.ending, ClosedError):
            self.counts.count_lost()
            self._nodes[key.address].on_connection_lost(opened.connection.ending, opened.since)

    def _keep_retired(self, connection: BrokerConnection) -> None:
        """Keep a reference to a retired connection until its socket is closed.

        Otherwise it could be garbage-collected while requests on it are in flight.
        """
        self._retired = [retired for retired in self._retired if not retired.is_closed]
        self._retired.append(connection)
