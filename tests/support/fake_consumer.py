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
    """The cluster in place of the world. Members of KIP-848 name themselves: a seed for each."""
    return Environment(
        open_broker=cluster.open,
        clock=asyncio.get_running_loop().time,
        randomness=Random(seed),
    )


@asynccontextmanager
async def coordinating(protocol: str) -> AsyncIterator[FakeCluster]:
    """A cluster that keeps groups by that protocol, and no others."""
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
    """Of the topic t, in the group g, from the beginning."""
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 50,
    }
    inside: Environment = options.pop("environment", None) or environment(cluster)
    return inside.run(Consumer, *topics, **by_protocol({**settings, **options}))
