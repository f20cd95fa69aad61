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
"""Data losses. The option `failOnDataLoss` decides whether they are errors."""


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the checkpoint format of Spark's own source."""
    by_topic: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        by_topic.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return by_topic


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets from the checkpoint format of Spark's own source."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }


_START_KEY: Final = "started at "  # never the start of a topic name, which has no spaces


def with_start(end: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
    """Return the end offsets of a query's first micro-batch, with its start offsets added.

    Spark stores only the end of a micro-batch in its checkpoint. To repeat the first micro-batch,
    it asks the source for the start again. The start is added as a topic without partitions.
    `offset_json` hides this entry in the checkpoint.
    """
    return {**end, f"{_START_KEY}{json.dumps(start)}": {}}


def start_in(end: Mapping[str, Any]) -> Offsets | None:
    """Return the start offsets that `with_start` added, or None if it added none.

    Only the end of a query's first micro-batch has them.
    """
    for name in end:
        if name.startswith(_START_KEY):
            return from_json(json.loads(name.removeprefix(_START_KEY)))
    return None


_IDS_KEY: Final = "topic ids "


def with_ids(end: Mapping[str, Any], ids: Mapping[str, UUID]) -> dict[str, Any]:
    """Return the offsets `end` with the ids of their topics added.

    With the ids, `recreated` recognises a re-created topic.

    All ids are in one entry. This entry has the form of a topic without partitions. `offset_json`
    hides it in the checkpoint.
    """
    if not ids:
        return dict(end)
    texts = {topic: _id_text(ids[topic]) for topic in sorted(ids)}
    return {**end, f"{_IDS_KEY}{json.dumps(texts)}": {}}


def ids_in(offsets: Mapping[str, Any]) -> dict[str, UUID]:
    """Return the topic ids that `with_ids` added. Offsets of Spark's own source have none."""
    for name in offsets:
        if name.startswith(_IDS_KEY):
            texts: dict[str, str] = json.loads(name.removeprefix(_IDS_KEY))
            return {
                topic: UUID(bytes=urlsafe_b64decode(f"{text}==")) for topic, text in texts.items()
            }
    return {}


def without_entries(offsets: Mapping[str, Any]) -> dict[str, Any]:
    """Return offsets without what `with_start` and `with_ids` have added."""
    return {
        name: value
        for name, value in offsets.items()
        if not name.startswith((_START_KEY, _IDS_KEY))
    }


def recreated(start: Mapping[str, UUID], end: Mapping[str, UUID]) -> Losses:
    """Return a data-loss report for each topic that was deleted and created again.

    `start` and `end` map topics to their ids at two checkpoints. A re-created topic has different
    ids in them.
    """
    return [
        DataLoss(
            "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
            f"topic {topic} was deleted and re-created, its id was {_id_text(start[topic])} and "
            f"is {_id_text(end[topic])}. Unread records of the old topic are lost, and the offsets "
            "of the query do not apply to the new topic",
        )
        for topic in sorted(start.keys() & end.keys())
        if start[topic] != end[topic]
    ]


def _id_text(topic_id: UUID) -> str:
    """Return a topic id as Kafka's own tools print it."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def limit_offsets(
    start: Offsets, latest: Offsets, log_starts: Offsets, max_offsets: int
) -> Offsets:
    """Return the end offsets of a micro-batch of about `max_offsets` offsets.

    The offsets are divided among the partitions in proportion to their lag. A partition with unread
    records gets at least one offset. Partitions that are not in `start`, because they were added
    later, start at their offset in `log_starts`.
    """
    known = {**log_starts, **start}
    lags = {tp: end - known[tp] for tp, end in latest.items() if end > known.get(tp, end)}
    total = sum(lags.values())
    if not total:
        return dict(latest)
    ends = dict(latest)
    for tp, lag_of_partition in lags.items():
        exact = max_offsets * (lag_of_partition / total)
        count = math.ceil(exact) if exact < 1 else math.floor(exact)
        ends[tp] = min(latest[tp], known[tp] + count)
    return ends


def count_backlog(start: Offsets, latest: Offsets, log_starts: Offsets) -> int:
    """Return the number of offsets between `start` and `latest` in all partitions.

    Partitions that are not in `start`, because they were added later, count from their offset in
    `log_starts`, because retention may have deleted their first records. A partition that is not in
    `log_starts` either was deleted meanwhile, and does not count.
    """
    known = {**log_starts, **start}
    return sum(end - known.get(tp, end) for tp, end in latest.items())


def ranges_between(
    start: Offsets, end: Offsets, log_starts: Offsets
) -> tuple[list[OffsetRange], Losses]:
    """Return the offset ranges from `start` to `end`, and a report for each detected data loss.

    Partitions that are not in `start`, because they were added later, start at their offset in
    `log_starts`.
    """
    losses: Losses = []
    added = sorted(end.keys() - start.keys())
    if unknown := [tp for tp in added if tp not in log_starts]:
        losses.append(
            DataLoss(
                "KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
                f"the earliest offsets of {_names(unknown)} cannot be found",
            )
        )
    losses += [
        DataLoss(
            "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
            f"the new partition {tp} starts from {log_starts[tp]} instead of 0",
        )
        for tp in added
        if log_starts.get(tp)
    ]
    if deleted := sorted(start.keys() - end.keys()):
        losses.append(
            DataLoss("KAFKA_DATA_LOSS.PARTITIONS_DELETED", f"{_names(deleted)} were deleted")
        )
    ranges = []
    for tp in sorted(end):
        first = start.get(tp, log_starts.get(tp))
        if first is None:
            continue
        if end[tp] < first:
            losses.append(
                DataLoss(
                    "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
                    f"the offset of {tp} changed from {first} to {end[tp]}: the query starts after "
                    "the end of the log, or the topic was deleted and re-created",
                )
            )
        elif end[tp] > first:
            ranges.append(OffsetRange(tp.topic, tp.partition, first, end[tp]))
    return ranges, losses


def lag(progress: Any) -> dict[str, float]:  # noqa: ANN401 - pyspark's progress, or its JSON as a dict
    """Return the lag of a streaming query: the number of offsets that it has not read yet.

    ``lag(query.lastProgress)`` returns a dict with the least, the largest and the mean lag of the
    Kafka partitions: ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and
    ``avgOffsetsBehindLatest``. Spark does not let a Python source report these metrics itself. The
    result is empty if the query has no offsets yet.
    """
    values = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    lags = []
    for source in values["sources"]:
        latest, done = (progress_offsets(source.get(key)) for key in ("latestOffset", "endOffset"))
        lags += [max(0, end - done.get(tp, 0)) for tp, end in latest.items()]
    if not lags:
        return {}
    return {
        "minOffsetsBehindLatest": min(lags),
        "maxOffsetsBehindLatest": max(lags),
        "avgOffsetsBehindLatest": sum(lags) / len(lags),
    }


def progress_offsets(value: Any) -> Mapping[Any, int]:  # noqa: ANN401 - a dict, its JSON, or None
    """Return the Kafka offsets in a query's progress report.

    Return an empty mapping for offsets of other sources, which may have any form.
    """
    try:
        return from_json(json.loads(value) if isinstance(value, str) else value)
    except (AttributeError, ValueError):
        return {}


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
