"""Feeders of a real broker, and the content of their sinks."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.dataset as ds

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.records.arrow import COLUMNS, schema_of
from asyncconsumer.spark.feeder.batches import BatchPart, FeedBatch, TableBuilder
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.real_consumer import make_consumer

SCHEMA = schema_of(COLUMNS, timestamps="us")
SMALL: dict[str, Any] = {"max_records": 50, "max_wait_ms": 50}


def reader(kafka: KafkaHandle, *topics: str, group: str, **options: Any) -> Consumer:
    settings = {"enable_auto_commit": False, "revoke_grace_ms": 0, **options}
    return make_consumer(kafka, *topics, group_id=group, **settings)


def make_feeder(
    kafka: KafkaHandle, topic: str, group: str, sink: Any = None, **options: Any
) -> SparkFeeder:
    """Return a feeder with small batches."""
    return SparkFeeder(reader(kafka, topic, group=group), sink, **{**SMALL, **options})


def landed(folder: Path) -> pa.Table:
    """Return the table that Spark would read."""
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    return ds.dataset(files, SCHEMA, format="parquet").to_table()


def numbers(table: pa.Table) -> list[int]:
    """Return the values, sorted."""
    return sorted(int(value.as_py()) for value in table["value"])


def ranges(folder: Path) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Return the ranges of the files by partition."""
    return ranges_of(path.name for path in folder.glob("kafka-*.parquet"))


def ranges_of(files: Iterable[str]) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Return the ranges of files with these names by partition."""
    result: dict[TopicPartition, list[tuple[int, int]]] = {}
    for name in sorted(files):
        stem = name.removeprefix("kafka-").removesuffix(".parquet")
        topic, partition, start, end = stem.rsplit("-", 3)
        place = TopicPartition(topic, int(partition))
        result.setdefault(place, []).append((int(start), int(end)))
    return result


def are_contiguous(results: Iterable[tuple[int, int]]) -> bool:
    """Return whether each range starts at the end of the previous one."""
    listed = list(results)
    return all(first[1] == other[0] for first, other in pairwise(listed))


def repeated(values: Iterable[int]) -> list[int]:
    return [value for value, count in Counter(values).items() if count > 1]


def batch(
    topic: str,
    partition: int,
    start: int,
    values: Iterable[int],
    *,
    topic_id: UUID | None = None,
) -> FeedBatch:
    """Return a batch of one partition, without a broker."""
    listed = list(values)
    rows = pa.RecordBatch.from_pylist(
        [
            {
                "topic": topic,
                "partition": partition,
                "offset": start + place,
                "timestamp": 0,
                "timestamp_type": 0,
                "key": None,
                "value": b"%d" % value,
                "headers": [],
            }
            for place, value in enumerate(listed)
        ],
        SCHEMA,
    )
    place = TopicPartition(topic, partition)
    end = start + len(listed)
    part = BatchPart(
        place,
        start,
        end,
        len(listed),
        rows.nbytes,
        partial(TableBuilder(COLUMNS).build, [rows]),
        topic_id,
    )
    return FeedBatch({place: part})


def joined(*batches: FeedBatch) -> FeedBatch:
    return FeedBatch({tp: part for each in batches for tp, part in each.parts.items()})


class Gate(LandingFolder):
    """A landing folder whose `publish` waits while a test has it shut."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(folder)
        self._loop = loop
        self._open = asyncio.Event()
        self._open.set()
        self.waiting = 0
        self.trouble: Callable[[], None] = lambda: None

    def shut(self) -> None:
        self._open.clear()

    def unlock(self) -> None:
        self._open.set()

    def publish(self, batch: FeedBatch, prepared: Any) -> Any:
        self.trouble()
        self.waiting += 1
        try:
            asyncio.run_coroutine_threadsafe(self._open.wait(), self._loop).result()
        finally:
            self.waiting -= 1
        return super().publish(batch, prepared)
