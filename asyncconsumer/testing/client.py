"""A client of a fake cluster with its own network."""

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Final

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConnectFailed, ConnectionLost
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.testing.fake_kafka.complete import CompleteCluster
from asyncconsumer.types import Address

_SECONDS_TO_REFUSE: Final = 0.01


class FakeClient(AsyncResource):
    """A network for some clients of a test, which can fail apart from that of the other clients.

    Consumers, producers and apps that are created in its ``async with`` block use this network, as
    if they ran in another process.
    """

    def __init__(self, cluster: CompleteCluster, randomness: Random) -> None:
        self._cluster = cluster
        self._online = True
        self._connections: list[BrokerConnection] = []
        self._environment = Environment(
            open_broker=self._connect,
            randomness=randomness,
            clock=asyncio.get_running_loop().time,  # so no threads are started
            now_ms=cluster.now_ms,
        )

    @property
    def environment(self) -> Environment:
        """Transports, random numbers and clocks of this client."""
        return self._environment

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.enter_context(self._environment.in_use())

    def disconnect(self) -> None:
        """Break all connections of this client and refuse new ones, as if its network failed.

        A group keeps a disconnected member until its session times out.
        """
        self._online = False
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.close(ConnectionLost(connection.address, "the test disconnected the client"))

    def reconnect(self) -> None:
        """Let this client connect again. Broken connections stay closed."""
        self._online = True

    async def _connect(self, address: Address, config: ConnectionConfig) -> BrokerConnection:
        if not self._online:
            await asyncio.sleep(_SECONDS_TO_REFUSE)
            raise ConnectFailed(address, "the test disconnected the client")
        connection = await self._cluster.open(address, config)
        self._connections = [each for each in self._connections if not each.is_closed]
        self._connections.append(connection)
        return connection
