"""Offsets by earliest, latest or time, asked of a partition's leader."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from aiokafka.protocol.api import Response

from asyncconsumer.errors import BrokerError, ConfigError
from asyncconsumer.fetch.leader import Leaders
from asyncconsumer.model import TopicPartition
from asyncconsumer.wire.messages import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListedOffset,
    ListOffsetsRequest,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


def milliseconds(moment: int | datetime) -> int:
    """A moment as ListOffsets has it; what is a number is taken as it is."""
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise ConfigError(f"{moment} has no time zone: give one, e.g. datetime.now(UTC)")
    return (moment - _EPOCH) // timedelta(milliseconds=1)  # exactly: seconds as a float are not
