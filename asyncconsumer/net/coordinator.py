"""Where a group's coordinator is, and how to ask it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka.protocol.coordination import FindCoordinatorRequest

from asyncconsumer.errors import (
    BrokerConnectionError,
    BrokerError,
    CoordinatorNotAvailable,
    MalformedResponse,
    NotCoordinator,
)
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.types import Address

_GROUP: Final = 0  # a kind of coordinator; the other is for transactions


class Coordinator:
    """The coordinator of one group. All who ask it share what is known of its place.

    It is looked for when somebody asks and it is not known.
    """

    def __init__(self, group_id: str, brokers: BrokerPool, cluster: Cluster) -> None:
        self.group_id: Final = group_id
        self._brokers = brokers
        self._cluster = cluster
        self._address: Address | None = None

    @property
    def address(self) -> Address | None:
        """Where it is, as far as is known now."""
        return self._address

    async def find(self) -> Address:
        """Where it is."""
        if self._address is None:
            answer = await self._cluster.ask_any(FindCoordinatorRequest(self.group_id, _GROUP))
            row = answer.to_object()
            if row["error_code"]:
                about = f"the coordinator of group {self.group_id!r}"
                raise BrokerError.of(row["error_code"], about)
            address = Address(row["host"], row["port"])
            if not address.is_possible:
                reason = f"a coordinator at {tuple(address)}"
                raise MalformedResponse("FindCoordinator", answer.API_VERSION, 0, reason)
            self._address = address
        return self._address

    async def moved(self) -> bool:
        """Ask again where it is: whether that is elsewhere than we believed."""
        before, self._address = self._address, None
        return await self.find() != before

    def forget(self, address: Address | None = None) -> None:
        """It is not there any more; with an address only if that is what is believed."""
        if address is None or address == self._address:
            self._address = None

    @asynccontextmanager
    async def reached(self, traffic: Traffic) -> AsyncIterator[BrokerConnection]:
        """A connection to it. It is forgotten if an error within says that it moved."""
        address = await self.find()
        try:
            yield await self._brokers.connection(address, traffic)
        except (BrokerConnectionError, NotCoordinator, CoordinatorNotAvailable):
            self.forget(address)
            raise
