"""Offsets by place or time, asked of one broker for many partitions at once."""

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
    """The first offset of a log, and the one behind the last; -1 for what was not asked."""

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
    """What one broker says of the partitions that it leads. Sends one request."""
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
    """The ends of partitions that this broker leads, each with the leader epoch that we know.

    `moments` has EARLIEST, or LATEST, or both: each is a request.
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
    """The rows of an answer. Its first four columns are the same in every version.

    An answer may have a row for each of 100,000 partitions, so no row becomes a dict.
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
    """The ends with one more of them."""
    if isinstance(told, BrokerError):
        return told
    return (
        LogEnds(told.offset, ends.latest)
        if moment == EARLIEST
        else LogEnds(ends.earliest, told.offset)
    )
