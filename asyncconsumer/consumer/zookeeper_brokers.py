"""The broker addresses in ZooKeeper, read at the start and then watched.

Kafka metadata announces new brokers as long as one known broker is left. If all brokers are
replaced, only ZooKeeper has the new addresses.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NoReturn

from asyncconsumer.errors import ZooKeeperError
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.paths import BROKER_IDS
from asyncconsumer.zookeeper.registry import read_addresses
from asyncconsumer.zookeeper.session import ZooKeeperSession

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_TRIES: Final = 1.0


class ZooKeeperBrokers:
    """The addresses of live brokers, for the security protocol that this consumer uses."""

    def __init__(self, session: ZooKeeperSession, security_protocol: str) -> None:
        self._session = session
        self._protocol = security_protocol

    async def first(self) -> list[Address]:
        """Wait until a broker is registered. Return the addresses of all brokers."""
        async with aclosing(self._whenever_they_change()) as changes:
            async for addresses in changes:
                if addresses:
                    return addresses
                _log.warning(
                    "no broker in ZooKeeper has a listener for %s: waiting for one", self._protocol
                )
        raise AssertionError("changes have no end")

    async def follow(self, cluster: Cluster) -> NoReturn:
        """Watch the addresses in ZooKeeper, and pass each change to `cluster`.

        An empty list is ignored, because the brokers may register again.
        """
        while True:
            try:
                async for addresses in self._whenever_they_change():
                    if addresses:
                        cluster.set_bootstrap(addresses)
            except ZooKeeperError as error:
                _log.info("failed to read the brokers from ZooKeeper: %s", error)
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)

    async def _whenever_they_change(self) -> AsyncGenerator[list[Address], None]:
        with self._session.watch_children(BROKER_IDS) as watch:
            while True:
                await watch.changed.wait()
                await watch.read()
                yield await read_addresses(self._session, self._protocol)
