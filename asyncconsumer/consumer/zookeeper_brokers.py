"""Where brokers are, as ZooKeeper tells: asked at the start, and followed from then on.

Metadata tells of brokers that move as long as one of those we know is left. When all of them are
replaced, only ZooKeeper knows where the others are.
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
    """The addresses of live brokers that speak a security protocol."""

    def __init__(self, session: ZooKeeperSession, security_protocol: str) -> None:
        self._session = session
        self._protocol = security_protocol

    async def first(self) -> list[Address]:
        """As soon as there is one."""
        async with aclosing(self._whenever_they_change()) as changes:
            async for found in changes:
                if found:
                    return found
                _log.warning(
                    "ZooKeeper names no broker that speaks %s: waiting for one", self._protocol
                )
        raise AssertionError("changes have no end")

    async def follow(self, cluster: Cluster) -> NoReturn:
        """Tell a cluster whenever they change. While there is none, the last ones may come back."""
        while True:
            try:
                async for found in self._whenever_they_change():
                    if found:
                        cluster.set_bootstrap(found)
            except ZooKeeperError as error:
                _log.info("no news of brokers: %s", error)
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)

    async def _whenever_they_change(self) -> AsyncGenerator[list[Address], None]:
        with self._session.watch_children(BROKER_IDS) as watch:
            while True:
                await watch.changed.wait()
                await watch.read()
                yield await read_addresses(self._session, self._protocol)
