"""Members on a fake cluster, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.group.assignors import Assignor, RangeAssignor
from asyncconsumer.group.classic.config import ClassicGroupConfig
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.subscription import Subscription, TopicSubscription
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from tests.support.real_classic_group import ClassicMember

GROUP = "g"


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def fake_cluster(brokers: int = 1, partitions: int = 4) -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1), brokers=brokers) as cluster:
        cluster.add_topic("t", partitions)
        yield cluster


@asynccontextmanager
async def open_member(
    cluster: GroupCluster,
    requested: Subscription | None = None,
    assignors: Sequence[Assignor] = (),
    *,
    delay: float = 0.0,
    **options: Any,
) -> AsyncIterator[ClassicMember]:
    """Open a member that acknowledges each assignment after a delay."""
    config = ConnectionConfig(bootstrap_servers=cluster.bootstrap_servers)
    session = KafkaClient(config, patience_ms=10_000, opener=cluster.open, randomness=Random(2))
    async with session as client:
        coordinator = Coordinator(GROUP, client.brokers, client.cluster)
        membership = ClassicMembership(
            coordinator,
            client.cluster,
            ClassicGroupConfig(group_id=GROUP, **options),
            requested or TopicSubscription(["t"]),
            assignors or [RangeAssignor()],
            randomness=Random(3),
        )
        async with membership, asyncio.TaskGroup() as tasks:
            following = ClassicMember(membership, coordinator, delay)
            following.task = tasks.create_task(following.follow())
            try:
                yield following
            finally:
                following.task.cancel()
