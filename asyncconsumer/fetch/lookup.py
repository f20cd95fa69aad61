"""Offsets by earliest, latest or time, asked of a partition's leader."""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from aiokafka.protocol.api import Response

from asyncconsumer.errors import BrokerError, ConfigError, MalformedResponse
from asyncconsumer.fetch.leader import Leaders
from asyncconsumer.model import TopicPartition
from asyncconsumer.wire.messages import (
    MAX_TIMESTAMP,
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
        for topic in response.to_object()["topics"]:
            for row in topic["partitions"]:
                if (topic["name"], row["partition"]) != partition:
                    continue
                if row["error_code"]:
                    raise BrokerError.of(row["error_code"], str(partition))
                return Listed(row["offset"], row["timestamp"])
        raise MalformedResponse("ListOffsets", -1, 0, f"an answer without {partition}")

    return await leaders.request(partition, ListOffsetsRequest(wanted, level), read)


def milliseconds(moment: int | datetime) -> int:
    """A moment as ListOffsets has it; what is a number is taken as it is."""
    if isinstance(moment, int) and MAX_TIMESTAMP <= moment < 2**63:
        return moment
    if not isinstance(moment, datetime):
        raise ConfigError(
            f"{moment!r} is no moment: give a datetime with a time zone, milliseconds since 1970, "
            "EARLIEST or LATEST"
        )
    if moment.tzinfo is None:
        raise ConfigError(f"{moment} has no time zone: give one, e.g. datetime.now(UTC)")
    # exactly: seconds as a float are not; and no record is older, while -1 means something else
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
