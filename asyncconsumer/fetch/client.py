"""A Kafka client for readers without a group: connections, metadata and leaders."""

import functools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Final

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.fetch.direct.partition_reader import PartitionReader
from asyncconsumer.fetch.direct.partition_stream import PartitionStream
from asyncconsumer.fetch.leader_client import LeaderClient
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.pool import BrokerOpener, BrokerPool

_MAX_BODY_BYTES: Final = 32 * 2**20  # limit for all streams together, unless one body is larger


class KafkaClient(AsyncResource):
    """A client of one cluster, open for its `async with` block."""

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        patience_ms: int,
        opener: BrokerOpener = open_connection,
        randomness: Random | None = None,
        max_body_bytes: int = _MAX_BODY_BYTES,
    ) -> None:
        randomness = self.randomness = randomness or Random()  # noqa: S311 - jitter, shuffling
        self.brokers = BrokerPool(config, randomness=randomness, opener=opener)
        self.cluster = Cluster(self.brokers, randomness=randomness)
        self.leaders = LeaderClient(
            self.brokers, self.cluster, patience_ms=patience_ms, randomness=randomness
        )
        self.bodies = BodyCache(max_body_bytes)  # the decompressed bodies of this client's streams

    def stream(self, open_reader: Callable[[int], Awaitable[PartitionReader]]) -> PartitionStream:
        """Return a stream that reads one partition over its own connections.

        `open_reader` creates the reader of the partition. Its argument is the number of a new slot
        in the connection pool, so the reader shares no connection. The connections are closed when
        the stream ends or is garbage-collected.
        """
        slot = self.brokers.new_slot()
        close = functools.partial(self.brokers.close_slot, slot)
        return PartitionStream(functools.partial(open_reader, slot), close)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.brokers)
        await stack.enter_async_context(self.cluster)
