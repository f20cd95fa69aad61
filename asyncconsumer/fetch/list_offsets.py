"""ListOffsets requests to one broker for many partitions."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from aiokafka.protocol.api import Response

from asyncconsumer.errors import BrokerError, MalformedResponse
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.messages import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListedOffset,
    ListOffsetsRequest,
)
from asyncconsumer.types import Address, OffsetAndTimestamp, TopicPartition, partitions_of


class LogEnds(NamedTuple):
    """The first offset of a log and the offset after the last one; -1 if not requested."""

    earliest: int
    latest: int


_NOT_ASKED: Final = LogEnds(-1, -1)


async def list_offsets_at(
    brokers: BrokerPool,
    address: Address,
    asked: Mapping[TopicPartition, ListedOffset],
    *,
    committed_only: bool,
) -> dict[TopicPartition, OffsetAndTimestamp | BrokerError]:
    """Return the offsets of partitions that one broker leads. Send one request."""
    rows: dict[str, list[ListedOffset]] = {}
    for partition, row in asked.items():
        rows.setdefault(partition.topic, []).append(row)
    level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
    request = ListOffsetsRequest(rows, level)
    found = _read(await brokers.request(address, Traffic.CONTROL, request))
    if missing := asked.keys() - found.keys():
        raise MalformedResponse("ListOffsets", -1, 0, f"an answer without {min(missing)}")
    return found


async def ends(
    brokers: BrokerPool,
    address: Address,
    partitions: Mapping[TopicPartition, int],
    moments: Collection[int],
    *,
    committed_only: bool,
) -> dict[TopicPartition, LogEnds | BrokerError]:
    """Return the log ends of partitions that one broker leads.

    `partitions` has the known leader epochs. `moments` has EARLIEST, LATEST or both, and each takes
    one request.
    """
    found: dict[TopicPartition, LogEnds | BrokerError] = dict.fromkeys(partitions, _NOT_ASKED)
    for moment in sorted(moments):
        asked = {
            one: ListedOffset(one.partition, moment, epoch) for one, epoch in partitions.items()
        }
        listed = await list_offsets_at(brokers, address, asked, committed_only=committed_only)
        for one, before in found.items():
            if isinstance(before, LogEnds):
                found[one] = _with(before, moment, listed[one])
    return found


def _read(answer: Response) -> dict[TopicPartition, OffsetAndTimestamp | BrokerError]:
    """Return the rows of a response. The first four columns are the same in every version.

    A response may have 100,000 rows, so rows are not converted to dicts.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | BrokerError] = {}
    for topic, rows, *_ in answer.topics or ():
        partitions = partitions_of(topic, [row[0] for row in rows or ()])
        for partition, (_, code, timestamp, offset, *_) in zip(partitions, rows or (), strict=True):
            found[partition] = (
                BrokerError.of(code, str(partition))
                if code
                else OffsetAndTimestamp(offset, timestamp)
            )
    return found


def _with(
    ends: LogEnds, moment: int, told: OffsetAndTimestamp | BrokerError
) -> LogEnds | BrokerError:
    """Return `ends` with the offset of one more moment, or the error."""
    if isinstance(told, BrokerError):
        return told
    return (
        LogEnds(told.offset, ends.latest)
        if moment == EARLIEST
        else LogEnds(ends.earliest, told.offset)
    )
