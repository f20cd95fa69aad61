"""Where partitions begin and end, asked of one broker for many at once."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from asyncconsumer.errors import BrokerError, MalformedResponse
from asyncconsumer.model import Address, TopicPartition
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
    found: dict[int, dict[TopicPartition, int | BrokerError]] = {}
    for moment in sorted(moments):
        rows: dict[str, list[ListedOffset]] = {}
        for (topic, partition), epoch in partitions.items():
            rows.setdefault(topic, []).append(ListedOffset(partition, moment, epoch))
        level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        request = ListOffsetsRequest(rows, level)
        answer = await brokers.request(address, Traffic.CONTROL, request)
        found[moment] = _read(answer.to_object()["topics"] or ())
    return {one: _ends_of(one, found) for one in partitions}


def _read(topics: Iterable[Mapping[str, object]]) -> dict[TopicPartition, int | BrokerError]:
    found: dict[TopicPartition, int | BrokerError] = {}
    for topic in topics:
        for row in topic["partitions"] or ():  # type: ignore[attr-defined] # rows of any value
            partition = TopicPartition(str(topic["name"]), row["partition"])
            code = row["error_code"]
            found[partition] = BrokerError.of(code, str(partition)) if code else row["offset"]
    return found


def _ends_of(
    partition: TopicPartition, found: Mapping[int, Mapping[TopicPartition, int | BrokerError]]
) -> Ends | BrokerError:
    offsets: dict[int, int] = {}
    for moment, answer in found.items():
        offset = answer.get(partition)
        if offset is None:
            raise MalformedResponse("ListOffsets", -1, 0, f"an answer without {partition}")
        if isinstance(offset, BrokerError):
            return offset
        offsets[moment] = offset
    return Ends(offsets.get(EARLIEST, _NOT_ASKED), offsets.get(LATEST, _NOT_ASKED))
