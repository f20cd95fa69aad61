"""The APIs of a fake cluster that create topics and add partitions."""

from collections.abc import Callable
from typing import Any, Final

from asyncconsumer.protocol.admin_topics import CREATE_PARTITIONS, CREATE_TOPICS
from asyncconsumer.testing.fake_kafka.broker import Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    INVALID_PARTITIONS,
    NONE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from asyncconsumer.testing.fake_kafka.tables import handler
from asyncconsumer.testing.fake_kafka.topics import Topics

_DEFAULT_PARTITIONS: Final = 1  # for a request with -1, as that of a new broker


def topic_handlers(topics: Topics) -> dict[int, Handler]:
    """Return the handlers of CreateTopics and CreatePartitions, which change `topics`."""

    def create(name: str, row: dict[str, Any]) -> int:
        if name in topics.view.topics:
            return TOPIC_ALREADY_EXISTS
        count = row["num_partitions"]
        topics.add_topic(name, _DEFAULT_PARTITIONS if count < 0 else count)
        return NONE

    def grow(name: str, row: dict[str, Any]) -> int:
        if name not in topics.view.topics:
            return UNKNOWN_TOPIC_OR_PARTITION
        if row["count"] <= len(topics.view.topic(name).partitions):
            return INVALID_PARTITIONS
        topics.add_partitions(name, row["count"])
        return NONE

    return {
        CREATE_TOPICS.key: handler(CREATE_TOPICS, _each(create)),
        CREATE_PARTITIONS.key: handler(CREATE_PARTITIONS, _each(grow)),
    }


def _each(
    change: Callable[[str, dict[str, Any]], int],
) -> Callable[[Request, dict[str, Any]], dict[str, Any]]:
    """Return a function that handles a request by a call of `change` for each of its topics.

    The function returns the fields of the response. `change` is called with the topic's name and
    its row in the request, and returns an error code.
    """

    def answer(request: Request, received: dict[str, Any]) -> dict[str, Any]:
        rows = [
            {
                "name": row["name"],
                "error_code": request.code or change(row["name"], row),
                "error_message": None,
            }
            for row in received["topics"]
        ]
        return {"throttle_time_ms": 0, "topics": rows}

    return answer
