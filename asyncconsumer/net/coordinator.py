"""The coordinator of a group or of a transactional id, with its address and connections to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from asyncconsumer.aiokafka_parts import FindCoordinatorRequest
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

_GROUP, _TRANSACTION = 0, 1  # the coordinator types


class Coordinator:
    """The coordinator of one group, or of a transactional id if `transactional` is set.

    All callers share the known address of the coordinator. If it is not known, the next caller that
    needs it sends FindCoordinator.
    """

    def __init__(
        self, group_id: str, brokers: BrokerPool, cluster: Cluster, *, transactional: bool = False
    ) -> None:
        self.group_id: Final = group_id
        self._kind = _TRANSACTION if transactional else _GROUP
        self._brokers = brokers
        self._cluster = cluster
        self._address: Address | None = None

    @property
    def address(self) -> Address | None:
        """Return the coordinator's known address, or None."""
        return self._address

    async def find(self) -> Address:
        """Return the coordinator's known address. Send FindCoordinator if it is not known."""
        if self._address is None:
            response = await self._cluster.ask_any(
                FindCoordinatorRequest(self.group_id, self._kind)
            )
            row = response.to_object()
            if row["error_code"]:
                kind = "transactional id" if self._kind else "group"
                about = f"the coordinator of {kind} {self.group_id!r}"
                raise BrokerError.from_code(row["error_code"], about)
            address = Address(row["host"], row["port"])
            if not address.is_possible:
                reason = f"a coordinator at {tuple(address)}"
                raise MalformedResponse("FindCoordinator", response.API_VERSION, 0, reason)
            self._address = address
        return self._address

    async def moved(self) -> bool:
        """Send FindCoordinator again. Return whether the coordinator has another address now."""
        before, self._address = self._address, None
        return await self.find() != before

    def forget(self, address: Address | None = None) -> None:
        """Drop the known address, so that the next `find` looks it up.

        If `address` is given, drop the known address only if it equals `address`.
        """
        if address is None or address == self._address:
            self._address = None

    @asynccontextmanager
    async def reached(self, traffic: Traffic) -> AsyncIterator[BrokerConnection]:
        """Return an async context manager with a connection to the coordinator.

        If the block raises an error that says that the coordinator has moved or is unreachable,
        drop the known address.
        """
        address = await self.find()
        try:
            yield await self._brokers.connection(address, traffic)
        except (BrokerConnectionError, NotCoordinator, CoordinatorNotAvailable):
            self.forget(address)
            raise
