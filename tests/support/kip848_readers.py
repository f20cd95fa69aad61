"""Members of KIP-848 groups that read their partitions from a real Kafka."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ConnectionConfig, EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.kip848.config import ConsumerGroupConfig
from asyncconsumer.group.kip848.membership import ConsumerGroupMembership
from asyncconsumer.group.subscription import TopicSubscription
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.rebalance import Listeners, Rebalancer
from asyncconsumer.rebalance.runner import MembershipRunner
from asyncconsumer.streams.routes import TopicRoutes
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition


class ReadingMember:
    """A member, and the values that it received."""

    def __init__(self, rebalancer: Rebalancer, stream: Stream) -> None:
        self.values: Counter[bytes] = Counter()
        self._rebalancer = rebalancer
        self._stream = stream

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self._rebalancer.reading)

    async def read(self) -> None:
        async for record in self._stream:
            assert record.value is not None
            self.values[record.value] += 1


@asynccontextmanager
async def reading(
    servers: str, group: str, topic: str, **options: Any
) -> AsyncIterator[ReadingMember]:
    """Open a member that reads and commits. It leaves at the end of the block."""
    config, randomness = ConnectionConfig(bootstrap_servers=servers), Random()
    engine = EngineConfig(auto_offset_reset="earliest")
    async with (
        KafkaClient(config, patience_ms=30_000) as client,
        FetchManager(
            client.brokers, client.cluster, FetchConfig(), engine, randomness=randomness
        ) as manager,
        Scope("test") as scope,
    ):
        coordinator = Coordinator(group, client.brokers, client.cluster)
        membership = ConsumerGroupMembership(
            coordinator,
            client.cluster,
            ConsumerGroupConfig(group_id=group, **options),
            TopicSubscription([topic]),
            randomness=randomness,
        )
        stream = Stream(manager.channel(), membership)
        store = KafkaOffsets(
            coordinator,
            patience_ms=10_000,
            randomness=randomness,
            identity=lambda: membership.identity,
        )
        committer, routes = Committer(store), TopicRoutes([stream])
        rebalancer = Rebalancer(
            membership,
            manager,
            committer,
            routes,
            auto_offset_reset="earliest",
            auto_commit=True,
            listeners=Listeners(),
            grace=5.0,
        )
        following = MembershipRunner("a test", membership, committer, rebalancer)
        async with membership, asyncio.TaskGroup() as tasks:
            following.start(scope, 200)
            await following.joined()
            reading = ReadingMember(rebalancer, stream)
            tasks.create_task(reading.read())
            yield reading
            await following.end()
