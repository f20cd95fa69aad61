"""Offsets by earliest, latest or time, asked of a partition's leader."""

from typing import Any, NamedTuple

from aiokafka.protocol.api import Response

from asyncconsumer.errors import BrokerError
from asyncconsumer.fetch.leader import Leaders
from asyncconsumer.model import TopicPartition
from asyncconsumer.wire.messages import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListedOffset,
    ListOffsetsRequest,
)


class Listed(NamedTuple):
    """An offset, and the timestamp of the record there; -1 when there is none."""

    offset: int
    timestamp: int


async def list_offset(
    leaders: Leaders, partition: TopicPartition, timestamp: int, *, committed_only: bool = False
) -> Listed:
    """The first offset at or after `timestamp` (ms), or at one of the constants of ListOffsets."""
    level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
    wanted = {partition.topic: [ListedOffset(partition.partition, timestamp)]}

    def read(response: Response) -> Listed:
        row: dict[str, Any] = response.to_object()["topics"][0]["partitions"][0]
        if row["error_code"]:
            raise BrokerError.of(row["error_code"], str(partition))
        return Listed(row["offset"], row["timestamp"])

    return await leaders.request(partition, ListOffsetsRequest(wanted, level), read)
