"""Where partitions begin and end, asked of one broker for many at once."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

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


class Ends(NamedTuple):
    """The first offset of a log, and the one behind the last."""

    earliest: int
    latest: int


async def ends(
    brokers: Brokers,
    address: Address,
    partitions: Mapping[TopicPartition, int],
    *,
    committed_only: bool,
) -> dict[TopicPartition, Ends | BrokerError]:
    """The ends of partitions that this broker leads, each with the leader epoch that we know."""
    found = []
    for moment in (EARLIEST, LATEST):
        rows: dict[str, list[ListedOffset]] = {}
        for (topic, partition), epoch in partitions.items():
            rows.setdefault(topic, []).append(ListedOffset(partition, moment, epoch))
        level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        request = ListOffsetsRequest(rows, level)
        answer = await brokers.request(address, Traffic.CONTROL, request)
        found.append(_read(answer.to_object()["topics"] or ()))
    return {one: _both(one, *(answer.get(one) for answer in found)) for one in partitions}


def _read(topics: Iterable[Mapping[str, object]]) -> dict[TopicPartition, int | BrokerError]:
    found: dict[TopicPartition, int | BrokerError] = {}
    for topic in topics:
        for row in topic["partitions"] or ():  # type: ignore[attr-defined] # rows of any value
            partition = TopicPartition(str(topic["name"]), row["partition"])
            code = row["error_code"]
            found[partition] = BrokerError.of(code, str(partition)) if code else row["offset"]
    return found


def _both(
    partition: TopicPartition, earliest: int | BrokerError | None, latest: int | BrokerError | None
) -> Ends | BrokerError:
    for one in (earliest, latest):
        if isinstance(one, BrokerError):
            return one
    if not (isinstance(earliest, int) and isinstance(latest, int)):
        raise MalformedResponse("ListOffsets", -1, 0, f"an answer without {partition}")
    return Ends(earliest, latest)
