"""`Admin`, the client for topics, groups, offsets and lag.

async with Admin("localhost:9092") as admin:
    await admin.create_topic("orders", partitions=6)
    for listing in await admin.groups(): ...
    lag = await admin.lag("billing", seconds=True)
"""

import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Unpack

from asyncconsumer.admin.client import AdminClient
from asyncconsumer.admin.groups import GroupOperations
from asyncconsumer.admin.topics import TopicOperations
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.config import (
    AdminOptions,
    ConnectionConfig,
    ZooKeeperConfig,
    document_options,
    refuse_unknown,
    whole_number,
)
from asyncconsumer.config.tls import refuse_tls_options
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConfigError


@document_options(AdminOptions)
class Admin(TopicOperations, GroupOperations, AsyncResource):
    """An admin client of one cluster, open for its ``async with`` block.

    With ``zookeeper_connect`` it also manages groups in ZooKeeper. Then ``bootstrap_servers`` may
    be omitted, because the broker addresses are read from ZooKeeper. Retriable errors are retried
    for ``retry_timeout_ms`` and raised after that.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        zookeeper_connect: str | None = None,
        zookeeper_auth: str | None = None,
        zookeeper_sasl: str | None = None,
        zookeeper_ssl_context: ssl.SSLContext | None = None,
        retry_timeout_ms: int = 10_000,
        **options: Unpack[AdminOptions],
    ) -> None:
        environment = Environment.current()
        refuse_tls_options(options)
        refuse_unknown(options, ConnectionConfig)
        whole_number("retry_timeout_ms", retry_timeout_ms, 0)
        if not bootstrap_servers and zookeeper_connect is None:
            raise ConfigError(
                "`bootstrap_servers` is missing. Name at least one as 'host:port', or set "
                "`zookeeper_connect`"
            )
        zookeeper = None
        if zookeeper_connect is not None:
            zookeeper = ZooKeeperConfig(
                zookeeper_connect=zookeeper_connect,
                auth=zookeeper_auth,
                sasl=zookeeper_sasl,
                ssl_context=zookeeper_ssl_context,
            )
        config = ConnectionConfig(
            bootstrap_servers=bootstrap_servers or "localhost",
            **{name: value for name, value in options.items() if value is not None},  # type: ignore[arg-type] # names are checked
        )
        self._client = AdminClient(
            config,
            zookeeper,
            brokers_from_zookeeper=not bootstrap_servers,
            patience_ms=retry_timeout_ms,
            environment=environment,
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._client)
