"""The Metadata API: brokers, topics and leaders as one broker knows them."""

import re
from typing import Any, Final

from asyncconsumer.protocol.messages import METADATA as API
from asyncconsumer.testing.fake_kafka.broker import Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from asyncconsumer.testing.fake_kafka.state import Partition, View
from asyncconsumer.testing.fake_kafka.tables import handler

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NOT_ASKED_FOR: Final = -(2**31)  # authorized operations: not requested


def _values(request: Request, received: dict[str, Any]) -> dict[str, Any]:
    view = request.broker.view
    if received["topics"] is None:
        names = list(view.topics)
    else:
        names = [_name(view, row) for row in received["topics"]]
        _create_missing(request, names)
    return {
        "throttle_time_ms": 0,
        "brokers": [
            {"node_id": node, "host": address.host, "port": address.port, "rack": rack}
            for node, address, rack in view.endpoints.values()
        ],
        "cluster_id": "fake",
        "controller_id": min(view.endpoints, default=-1),
        "topics": [_topic(view, name, request.code) for name in names],
        "cluster_authorized_operations": _NOT_ASKED_FOR,
        "error_code": NONE,
    }


def _create_missing(request: Request, names: list[str]) -> None:
    """Create requested topics that do not exist, if the cluster creates topics automatically."""
    create, known = request.broker.rules.create_topic, request.broker.view.topics
    if create is None:
        return
    for name in names:
        if name not in known and _LEGAL.fullmatch(name):
            create(name)


def _name(view: View, row: dict[str, Any]) -> str:
    """Return the topic name in `row`, which requests a topic by its name or by its id."""
    return row["name"] if row["name"] is not None else view.names.get(row["topic_id"].bytes, "")


def _topic(view: View, name: str, code: int) -> dict[str, Any]:
    topic = view.topics.get(name)
    if not name:
        code = code or UNKNOWN_TOPIC_ID
    if topic is None and not code:
        code = UNKNOWN_TOPIC_OR_PARTITION if _LEGAL.fullmatch(name) else INVALID_TOPIC_EXCEPTION
    available = topic is not None and not code
    return {
        "error_code": code,
        "name": name or None,
        "topic_id": topic.topic_id if topic is not None and available else None,
        "is_internal": False,
        "partitions": [_partition(view, partition) for partition in topic.partitions]
        if topic is not None and available
        else [],
        "authorized_operations": _NOT_ASKED_FOR,
    }


def _partition(view: View, partition: Partition) -> dict[str, Any]:
    return {
        "error_code": LEADER_NOT_AVAILABLE if partition.leader < 0 else NONE,
        "partition": partition.number,
        "leader": partition.leader,
        "leader_epoch": partition.epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline_replicas": [node for node in partition.replicas if node not in view.endpoints],
    }


METADATA: Final[Handler] = handler(API, _values)
