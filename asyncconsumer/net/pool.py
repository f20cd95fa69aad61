"""Which connection to use: one to each address and kind of traffic, opened when it is needed."""

import asyncio
import enum
import itertools
from math import inf
from random import Random
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from aiokafka.protocol.api import Request, Response

from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ClosedError, ConsumerError, HostNotAllowed
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.node import BrokerNode
from asyncconsumer.types import Address

_KEPT_SECONDS: Final = 600.0  # that we remember how a node behaved to which nothing leads
_SUSPECT_SECONDS: Final = 30.0  # nobody may be left to say that it is well again


class Traffic(enum.Enum):
    """Kinds of traffic that must not wait for each other."""

    CONTROL = "control"  # metadata, offsets
    FETCH = "fetch"  # waits at the broker until there are records
    GROUP = "group"  # commits, which must not be late
    JOIN = "join"  # waits at the broker for the other members of a group
    HEARTBEAT = "heartbeat"  # nothing may be before it
    PRODUCE = "produce"  # waits at the broker until replicas have the records


class BrokerOpener(Protocol):
    """How connections are opened. `open_connection` is the real one."""

    async def __call__(self, address: Address, config: ConnectionConfig) -> BrokerConnection:
        """A connection that is ready for requests, or a ConsumerError."""


class _PoolKey(NamedTuple):
    """Where a connection leads, and for what."""

    address: Address
    traffic: Traffic
    lane: int


class _Open(NamedTuple):
    connection: BrokerConnection
    since: float


class BrokerPool:
    """The connections of one client, for as long as its ``async with`` block lasts.

    Each is opened when it is first asked for, once for all who ask. A failed opening fails them
    all: whether to ask again, and whom, is theirs to decide, but the node is not tried again before
    a wait that grows from try to try. When a node changes its address, ask for the new one.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        randomness: Random,
        opener: BrokerOpener = open_connection,
    ) -> None:
        self.config: Final = config
        self._randomness = randomness
        self._opener = opener
        self._nodes: dict[Address, BrokerNode] = {}
        self._suspects: dict[Address, float] = {}  # until when
        self._opened: dict[_PoolKey, _Open] = {}
        self._retired: list[BrokerConnection] = []
        self._openings: dict[_PoolKey, asyncio.Task[BrokerConnection | ConsumerError]] = {}
        self._lanes = itertools.count(1)
        self._scope = Scope("brokers")

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        try:
            await self._scope.__aexit__(kind, error, where)
        finally:
            left = [*self._retired, *(there.connection for there in self._opened.values())]
            for connection in left:
                connection.close()
            for connection in left:
                await connection.wait_closed()

    async def request(
        self, address: Address, traffic: Traffic, message: Request, *, timeout: float | None = None
    ) -> Response:
        """Send a request over the connection for it, and decode the answer."""
        connection = await self.connection(address, traffic)
        return await connection.request(message, timeout=timeout)

    async def connection(
        self, address: Address, traffic: Traffic, *, lane: int = 0
    ) -> BrokerConnection:
        """The connection for a kind of traffic; opened, after a wait if need be, or an error.

        A broker answers the requests of one connection one after the other, and a fetch may wait
        long: who must not wait for another's takes a `lane` of its own, and closes it afterwards.
        """
        self._scope.check_open()
        way = _PoolKey(address, traffic, lane)
        if (there := self._opened.get(way)) is not None:
            if there.connection.usable:
                return there.connection
            self._forget(way, there)
        if not self.config.allows(address):
            raise HostNotAllowed(address, "the host is not one of allowed_hosts")
        opening = self._openings.get(way)
        if opening is None:
            name = f"open {address} for {traffic.value}"
            opening = self._openings[way] = self._scope.start(self._open(way), name)
        return await self._scope.outcome(opening)

    def new_lane(self) -> int:
        """A lane that nobody else has; 0 is for all."""
        return next(self._lanes)

    def close_lane(self, lane: int) -> None:
        """Close the connections of a lane; what is on its way over them is dropped."""
        for way, opening in self._openings.items():
            if way.lane == lane:
                opening.cancel()
        for way in [way for way in self._opened if way.lane == lane]:
            there = self._opened.pop(way)
            there.connection.close()
            self._retired = [one for one in self._retired if not one.gone] + [there.connection]

    def wait_before(self, address: Address) -> float:
        """Seconds until a node may be tried again; 0 unless it is in trouble."""
        return self._nodes[address].wait() if address in self._nodes else 0.0

    def suspect(self, address: Address) -> None:
        """It owes somebody an answer: let those who have a choice ask another one, for a while."""
        now = asyncio.get_running_loop().time()
        self._suspects = {one: until for one, until in self._suspects.items() if until > now}
        self._suspects[address] = now + _SUSPECT_SECONDS

    def trust(self, address: Address) -> None:
        """It answers."""
        self._suspects.pop(address, None)

    def preference_key(self, address: Address) -> tuple[bool, float]:
        """How little one should want to ask it, for those who have a choice: sort by it."""
        suspect = self._suspects.get(address, -inf) > asyncio.get_running_loop().time()
        return suspect, self.wait_before(address)

    async def _open(self, way: _PoolKey) -> BrokerConnection | ConsumerError:
        node = self._node(way.address)
        try:
            async with node.turn():
                connection = await self._opener(way.address, self.config)
        except ConsumerError as error:
            return error
        else:
            self._opened[way] = _Open(connection, asyncio.get_running_loop().time())
            return connection
        finally:
            del self._openings[way]

    def _node(self, address: Address) -> BrokerNode:
        """The node at an address. A new one takes the place of those that nobody uses any more."""
        now = asyncio.get_running_loop().time()
        if address not in self._nodes:
            used = {way.address for way in (*self._opened, *self._openings)}
            self._nodes = {
                one: node
                for one, node in self._nodes.items()
                if one in used or node.used_at >= now - _KEPT_SECONDS
            }
            self._nodes[address] = BrokerNode(self.config, self._randomness)
        node = self._nodes[address]
        node.used_at = now
        return node

    def _forget(self, way: _PoolKey, there: _Open) -> None:
        del self._opened[way]
        if there.connection.ending is None:
            there.connection.retire()  # its login runs out
            self._retired = [one for one in self._retired if not one.gone] + [there.connection]
        elif not isinstance(there.connection.ending, ClosedError):
            self._nodes[way.address].lost(there.connection.ending, there.since)
