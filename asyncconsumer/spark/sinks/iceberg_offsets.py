"""The offsets of a feeder in the snapshots of an Iceberg table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class TableOffsets:
    """The offset after each partition's data in a snapshot, and the ids of the topics."""

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)

    def after(self, batch: FeedBatch) -> "TableOffsets":
        """Return the offsets of the table after `batch` was added to it."""
        ends = {tp: part.end for tp, part in batch.parts.items()}
        ids = {tp.topic: part.topic_id for tp, part in batch.parts.items()}
        known = {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
        return TableOffsets({**self.ends, **ends}, {**self.topic_ids, **known})

    def to_json(self) -> str:
        """Return the offsets as text: by topic, the end of each partition and the topic's id."""
        topics: dict[str, dict[str, object]] = {}
        for tp, end in sorted(self.ends.items()):
            ends = topics.setdefault(tp.topic, {"ends": {}})["ends"]
            assert isinstance(ends, dict)
            ends[str(tp.partition)] = end
        for topic, topic_id in self.topic_ids.items():
            topics[topic]["id"] = topic_id.hex
        return json.dumps(topics, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "TableOffsets":
        """Return the offsets from a text that `to_json` has made."""
        ends: dict[TopicPartition, int] = {}
        topic_ids: dict[str, UUID] = {}
        for topic, stored in json.loads(text).items():
            for partition, end in stored["ends"].items():
                ends[TopicPartition(topic, int(partition))] = int(end)
            if "id" in stored:
                topic_ids[topic] = UUID(hex=stored["id"])
        return cls(ends, topic_ids)


def recorded_offsets(table: "Table", key: str) -> TableOffsets:
    """Return the offsets in the newest snapshot that has some, or an empty result.

    `key` is the name of the offsets in the summary of a snapshot. Other writers add snapshots
    without offsets. If all snapshots with offsets have expired, return the offsets in the table's
    property of the same name.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if snapshot.summary is not None and (text := snapshot.summary.get(key)) is not None:
            return _parse(table, text)
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)
    return _parse(table, table.properties.get(key, "{}"))


def _parse(table: "Table", text: str) -> TableOffsets:
    try:
        return TableOffsets.from_json(text)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"The Iceberg table {'.'.join(table.name())} has offsets that no feeder wrote: "
            f"{text[:200]!r}. Give the IcebergSink another `app`, or roll the table back."
        ) from error
