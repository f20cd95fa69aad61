"""A consumer on a fake cluster, on virtual time."""

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any

from asyncconsumer import Consumer
from asyncconsumer.connector import Outside
from asyncconsumer.testing.cluster.groups import GroupCluster


def outside(cluster: GroupCluster) -> Outside:
    """The cluster in place of the world."""
    return Outside(
        open_broker=cluster.open,
        clock=asyncio.get_running_loop().time,
        randomness=Random(2),
    )


def consumer(
    cluster: GroupCluster, topics: Iterable[str] = ("t",), /, **options: Any
) -> Consumer[Any, Any]:
    """Of the topic t, in the group g, from the beginning."""
    given: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 50,
        "heartbeat_thread": False,
        "outside": outside(cluster),
    }
    return Consumer(*topics, **{**given, **options})
