"""The APIs ListOffsets and OffsetForLeaderEpoch, which only a partition's leader serves."""

from typing import Any, Final

from asyncconsumer.protocol.messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    OFFSET_FOR_LEADER_EPOCH,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from asyncconsumer.protocol.messages import LIST_OFFSETS as LIST_OFFSETS_API
from asyncconsumer.testing.fake_kafka.broker import FakeBroker, Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from asyncconsumer.testing.fake_kafka.fetching import epoch_trouble
from asyncconsumer.testing.fake_kafka.state import Partition
from asyncconsumer.testing.fake_kafka.tables import handler


def _refusal(broker: FakeBroker, partition: Partition | None, epoch: int) -> int:
    """Return the error code if this broker does not lead a partition, otherwise 0.

    A leader epoch other than the broker's is an error, too. `partition` is None if it does not
    exist.
    """
    if partition is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    if broker.node_id not in partition.replicas:
        return NOT_LEADER_OR_FOLLOWER
    not_leader = NOT_LEADER_OR_FOLLOWER if partition.leader != broker.node_id else NONE
    return epoch_trouble(partition, epoch) or not_leader


def _listed(request: Request, received: dict[str, Any]) -> dict[str, Any]:
    committed = received.get("isolation_level", READ_UNCOMMITTED) == READ_COMMITTED
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                _offset(request, topic["name"], row, committed=committed)
                for row in topic["partitions"]
            ],
        }
        for topic in received["topics"]
    ]
    return {"throttle_time_ms": 0, "topics": topics}


def _offset(request: Request, name: str, row: dict[str, Any], *, committed: bool) -> dict[str, Any]:
    partition = request.broker.view.find(name, row["partition"])
    code = request.code or _refusal(request.broker, partition, row.get("current_leader_epoch", -1))
    offset = timestamp = epoch = -1
    if partition is not None and not code:
        offset, timestamp, epoch = _look_up(partition, row["timestamp"], committed=committed)
    return {
        "partition": row["partition"],
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _look_up(partition: Partition, moment: int, *, committed: bool) -> tuple[int, int, int]:
    """Return the offset, timestamp and leader epoch for a timestamp, EARLIEST or LATEST.

    With `committed`, LATEST is the last stable offset.
    """
    log = partition.log
    if moment == LATEST:
        return log.stable if committed else log.high, -1, partition.epoch
    if moment == EARLIEST:
        return log.start, -1, log.epoch_at(log.start)
    return log.newest() if moment == MAX_TIMESTAMP else log.at_time(moment)


def _ended(request: Request, received: dict[str, Any]) -> dict[str, Any]:
    topics = [
        {
            "topic": topic["topic"],
            "partitions": [_end(request, topic["topic"], row) for row in topic["partitions"]],
        }
        for topic in received["topics"]
    ]
    return {"throttle_time_ms": 0, "topics": topics}


def _end(request: Request, name: str, row: dict[str, Any]) -> dict[str, Any]:
    partition = request.broker.view.find(name, row["partition"])
    code = request.code or _refusal(request.broker, partition, row["current_leader_epoch"])
    epoch = end = -1
    if partition is not None and not code:
        epoch, end = partition.log.end_of_epoch(row["leader_epoch"])
    return {
        "error_code": code,
        "partition": row["partition"],
        "leader_epoch": epoch,
        "end_offset": end,
    }


LIST_OFFSETS: Final[Handler] = handler(LIST_OFFSETS_API, _listed)
EPOCH_ENDS: Final[Handler] = handler(OFFSET_FOR_LEADER_EPOCH, _ended)
