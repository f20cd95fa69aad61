"""A consumer on a fake cluster, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from asyncconsumer import Consumer
from asyncconsumer.environment import Environment
from asyncconsumer.testing.fake_kafka import HANDLERS, FakeCluster
from asyncconsumer.testing.fake_kafka.consumer_groups import ConsumerGroups
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from tests.support.helpers import by_protocol


def environment(cluster: FakeCluster, seed: int = 2) -> Environment:
    """Return an environment on the fake cluster. KIP-848 members need a seed each for their ids."""
    return Environment(
        open_broker=cluster.open,
        clock=asyncio.get_running_loop().time,
        randomness=Random(seed),
    )


@asynccontextmanager
async def coordinating(protocol: str) -> AsyncIterator[FakeCluster]:
    """Yield a cluster that coordinates groups of this protocol only."""
    if protocol == "classic":
        async with GroupCluster(Random(1), brokers=1) as cluster:
            yield cluster
        return
    groups = ConsumerGroups(Random(1), session_timeout=10.0)
    handlers = {**HANDLERS, **groups.handlers}
    async with FakeCluster(Random(1), brokers=1, handlers=handlers) as cluster:
        yield cluster
        groups.close()


def make_consumer(
    cluster: FakeCluster, topics: Iterable[str] = ("t",), /, **options: Any
) -> Consumer[Any, Any]:
    """Return a consumer in the group g that starts at the earliest offset, by default of t."""
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 50,
    }
    fake_environment: Environment = options.pop("environment", None) or environment(cluster)
    return fake_environment.run(Consumer, *topics, **by_protocol({**settings, **options}))
