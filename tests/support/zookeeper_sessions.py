"""Sessions for tests, direct or through a proxy with faults."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.proxy import TcpProxy
from asyncconsumer.testing.servers.ports import HOST
from asyncconsumer.zookeeper.session import ZooKeeperSession

LONG = 60_000  # a session timeout that no test waits for


def session(connect: str, **options: Any) -> ZooKeeperSession:
    config = ZooKeeperConfig(zookeeper_connect=connect, **options)
    return ZooKeeperSession(config, randomness=Random(0))


@asynccontextmanager
async def proxied(
    zookeeper: ZooKeeperHandle, *, timeout_ms: int = LONG, **options: Any
) -> AsyncIterator[tuple[TcpProxy, ZooKeeperSession]]:
    """Open a session through a proxy, for up to 20 s, which is a third of a LONG timeout."""
    async with (
        asyncio.timeout(20),
        TcpProxy(HOST, zookeeper.server.nodes[0].port) as proxy,
        session(proxy.address, session_timeout_ms=timeout_ms, **options) as opened,
    ):
        yield proxy, opened
