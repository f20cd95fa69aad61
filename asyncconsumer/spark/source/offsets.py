"""Offsets of queries: their JSON form, and the ranges that a micro-batch reads. No I/O."""

import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID

from asyncconsumer.errors import DataLoss
from asyncconsumer.types import OffsetRange, TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
"""The offset of the next record of each partition."""

Losses: TypeAlias = list[DataLoss]
"""Losses of data. `failOnDataLoss` decides whether they are errors."""


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the checkpoint format of Spark's own source."""
    found: dict[str, dict[str, int]] = {}
    for one in sorted(offsets):
        found.setdefault(one.topic, {})[str(one.partition)] = offsets[one]
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets that `to_json` has formatted."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }


_STARTED: Final = "started at "  # topic names have no spaces


def with_start(end: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
    """Return the end of a query's first micro-batch with its start added.

    Spark stores only the end, and asks for the start again if it repeats that batch. The start is
    stored as a topic without partitions, which other readers of the checkpoint ignore.
    """
    return {**end, f"{_STARTED}{json.dumps(start)}": {}}


def start_in(end: Mapping[str, Any]) -> Offsets | None:
    """Return the start that `with_start` added; None for any batch but the first."""
    for name in end:
        if name.startswith(_STARTED):
            return from_json(json.loads(name.removeprefix(_STARTED)))
    return None


_IDS: Final = "topic ids "


def with_ids(end: Mapping[str, Any], ids: Mapping[str, UUID]) -> dict[str, Any]:
    """Return offsets with the ids of their topics, so that a re-created topic is recognised.

    All ids are one entry, in the form of a topic without partitions, as in `with_start`.
    """
    if not ids:
        return dict(end)
    told = {topic: _id_text(ids[topic]) for topic in sorted(ids)}
    return {**end, f"{_IDS}{json.dumps(told)}": {}}


def ids_in(offsets: Mapping[str, Any]) -> dict[str, UUID]:
    """Return the topic ids that `with_ids` added. Spark's own source writes none."""
    for name in offsets:
        if name.startswith(_IDS):
            told: dict[str, str] = json.loads(name.removeprefix(_IDS))
            return {
                topic: UUID(bytes=urlsafe_b64decode(f"{text}==")) for topic, text in told.items()
            }
    return {}


def recreated(start: Mapping[str, UUID], end: Mapping[str, UUID]) -> Losses:
    """Return a loss for each topic whose id changed between start and end."""
    return [
        DataLoss(
            "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
            f"topic {topic} was deleted and created again, its id was {_id_text(start[topic])} and "
            f"is {_id_text(end[topic])}: what was not read of the old topic is gone, and the "
            "offsets of the query say nothing about the new topic",
        )
        for topic in sorted(start.keys() & end.keys())
        if start[topic] != end[topic]
    ]


def _id_text(topic_id: UUID) -> str:
    """Return a topic id as Kafka's own tools print it."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def limited(start: Offsets, latest: Offsets, begins: Offsets, most: int) -> Offsets:
    """Return the end of a micro-batch of about `most` offsets, divided in proportion to lag.

    A partition that has something to read gets at least one offset. `begins` has the start of
    partitions that are not in `start`.
    """
    known = {**begins, **start}
    sizes = {one: end - known[one] for one, end in latest.items() if end > known.get(one, end)}
    total = sum(sizes.values())
    if not total:
        return dict(latest)
    found = dict(latest)
    for one, size in sizes.items():
        share = most * (size / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        found[one] = min(latest[one], known[one] + whole)
    return found


def backlog(start: Offsets, latest: Offsets) -> int:
    """Return the number of offsets to read."""
    return sum(end - start.get(one, 0) for one, end in latest.items())


def ranges_between(
    start: Offsets, end: Offsets, begins: Offsets
) -> tuple[list[OffsetRange], Losses]:
    """Return the ranges from `start` to `end`, and the losses of data between them."""
    losses: Losses = []
    new = sorted(end.keys() - start.keys())
    if unknown := [one for one in new if one not in begins]:
        losses.append(
            DataLoss(
                "KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
                f"the earliest offsets of {_names(unknown)} cannot be found",
            )
        )
    losses += [
        DataLoss(
            "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
            f"the new partition {one} starts from {begins[one]} instead of 0",
        )
        for one in new
        if begins.get(one)
    ]
    if gone := sorted(start.keys() - end.keys()):
        losses.append(DataLoss("KAFKA_DATA_LOSS.PARTITIONS_DELETED", f"{_names(gone)} are gone"))
    ranges = []
    for one in sorted(end):
        first = start.get(one, begins.get(one))
        if first is None:
            continue
        if end[one] < first:
            losses.append(
                DataLoss(
                    "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
                    f"the offset of {one} was changed from {first} to {end[one]}: the query starts "
                    "beyond the end of the log, or the topic was deleted and created anew",
                )
            )
        elif end[one] > first:
            ranges.append(OffsetRange(one.topic, one.partition, first, end[one]))
    return ranges, losses


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
