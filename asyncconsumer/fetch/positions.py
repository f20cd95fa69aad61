"""Offsets by place or time, asked of one broker for many partitions at once."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from aiokafka.protocol.api import Response

from asyncconsumer.errors import BrokerError, MalformedResponse
from asyncconsumer.model import Address, OffsetAndTimestamp, TopicPartition
from asyncconsumer.net.brokers import Brokers, Traffic
from asyncconsumer.wire.messages import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListedOffset,
    ListOffsetsRequest,
)

_NOT_ASKED: Final = -1


class Ends(NamedTuple):
    """The first offset of a log, and the one behind the last; -1 for what was not asked."""

    earliest: int
    latest: int


async def list_offsets_at(
    brokers: Brokers,
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
    brokers: Brokers,
    address: Address,
    partitions: Mapping[TopicPartition, int],
    moments: Collection[int],
    *,
    committed_only: bool,
) -> dict[TopicPartition, Ends | BrokerError]:
    """The ends of partitions that this broker leads, each with the leader epoch that we know.

    `moments` has EARLIEST, or LATEST, or both: each is a request.
    """
    found: dict[int, dict[TopicPartition, OffsetAndTimestamp | BrokerError]] = {}
    for moment in sorted(moments):
        asked = {
            one: ListedOffset(one.partition, moment, epoch) for one, epoch in partitions.items()
        }
        found[moment] = await list_offsets_at(
            brokers, address, asked, committed_only=committed_only
        )
    return {one: _ends_of(one, found) for one in partitions}


def _read(answer: Response) -> dict[TopicPartition, OffsetAndTimestamp | BrokerError]:
    """The rows of an answer. Its first four columns are the same in every version.

    An answer may have a row for each of 100,000 partitions, so no row becomes a dict.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | BrokerError] = {}
    for topic, rows, *_ in answer.topics or ():
        for number, code, timestamp, offset, *_ in rows or ():
            partition = TopicPartition(topic, number)
            found[partition] = (
                BrokerError.of(code, str(partition))
                if code
                else OffsetAndTimestamp(offset, timestamp)
            )
    return found


def _ends_of(
    partition: TopicPartition,
    found: Mapping[int, Mapping[TopicPartition, OffsetAndTimestamp | BrokerError]],
) -> Ends | BrokerError:
    offsets: dict[int, int] = {}
    for moment, answer in found.items():
        listed = answer[partition]
        if isinstance(listed, BrokerError):
            return listed
        offsets[moment] = listed.offset
    return Ends(offsets.get(EARLIEST, _NOT_ASKED), offsets.get(LATEST, _NOT_ASKED))
