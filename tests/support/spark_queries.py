"""Topics of every kind, and queries with this source and with Spark's own."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import delete_records, until

OWN, TESTED = "kafka", "asyncconsumer"
T0 = int(datetime.now(UTC).timestamp()) // 3600 * 3_600_000 - 3_600_000
"""The timestamp of the first record, recent enough for retention. Each record is a second later."""

Rows = list[tuple[Any, ...]]


@dataclass
class World:
    kafka: KafkaHandle
    plain: str  # three partitions, with headers, nulls and empty values
    other: str  # one partition
    transactions: str  # two committed, one aborted, one open
    stamped: str  # by the broker, when it appended
    compacted: str
    trimmed: str  # offsets 0 to 9 are deleted
    empty: str


async def fill(
    kafka: KafkaHandle,
    topic: str,
    count: int,
    partitions: int = 1,
    *,
    start: int = 0,
    keyed: bool = False,
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(start, start + count):
            await producer.send(
                topic,
                {3: None, 7: b""}.get(number % 10, b"value %d" % number),
                key=None if number % 5 == 2 and not keyed else b"key %d" % (number % 3),
                partition=number % partitions,
                timestamp_ms=None if keyed else T0 + number * 1000,
                headers=[("h", b"%d" % number), ("n", None)] if number % 4 == 1 else [],
            )
        await producer.flush()


async def _transactions(kafka: KafkaHandle, topic: str) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        transactional_id=kafka.group(),
        transaction_timeout_ms=900_000,
    ) as producer:
        for keep in (True, False, True, None):
            await producer.begin_transaction()
            for number in range(5):
                await producer.send_and_wait(topic, b"%s %d" % (str(keep).encode(), number))
            if keep is not None:
                await (producer.commit_transaction if keep else producer.abort_transaction)()


async def _compact(kafka: KafkaHandle) -> str:
    topic = await kafka.topic(
        config={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "max.compaction.lag.ms": "200",
        }
    )
    await fill(kafka, topic, 60, keyed=True)

    from asyncconsumer import OffsetRange, RangeReader

    async with RangeReader(kafka.bootstrap_servers) as reader:

        async def compacted() -> bool:
            await fill(kafka, topic, 1, keyed=True)
            remaining = [record async for record in reader.read(OffsetRange(topic, 0, 0, 57))]
            return len(remaining) < 20

        await until(compacted)
    return topic


async def build(kafka: KafkaHandle) -> World:
    world = World(
        kafka,
        plain=await kafka.topic(partitions=3),
        other=await kafka.topic(),
        transactions=await kafka.topic(),
        stamped=await kafka.topic(config={"message.timestamp.type": "LogAppendTime"}),
        compacted=await _compact(kafka),
        trimmed=await kafka.topic(),
        empty=await kafka.topic(partitions=2),
    )
    await fill(kafka, world.plain, 90, 3)
    await fill(kafka, world.other, 20)
    await fill(kafka, world.stamped, 10)
    await fill(kafka, world.trimmed, 30)
    await delete_records(kafka, world.trimmed, 0, before=10)
    await _transactions(kafka, world.transactions)
    return world


def frame(spark: SparkSession, source: str, kafka: KafkaHandle, **options: Any) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.options(**as_text(options)).load()


def as_text(options: dict[str, Any]) -> dict[str, str]:
    return {
        name: json.dumps(value) if isinstance(value, dict) else str(value)
        for name, value in options.items()
    }


def rows(data: DataFrame) -> Rows:
    """Return the rows in the order of topic, partition and offset."""
    results = [tuple(row) for row in data.collect()]
    place = [data.columns.index(name) for name in ("topic", "partition", "offset")]
    return sorted(results, key=lambda row: tuple(row[index] for index in place))


def made(kafka: KafkaHandle) -> World:
    return asyncio.run(build(kafka))


class Stream:
    """A streaming query that can run repeatedly. Each run reads the available records and ends."""

    def __init__(
        self, spark: SparkSession, source: str, kafka: KafkaHandle, folder: Path, **options: Any
    ) -> None:
        self._spark = spark
        self._kafka = kafka
        self.folder = folder / source
        self.source = source
        self.options = {"startingOffsets": "earliest", **options}
        self.batches: list[int] = []  # the number of rows of each micro-batch
        self.progress: list[dict[str, Any]] = []  # Spark's report of each micro-batch

    def run(self, trigger: str = "availableNow", **options: Any) -> Rows:
        """Run the query, and return all rows that all runs have written."""
        self._written({trigger: True}, **options)
        return self.rows()

    def start(self, **options: Any) -> StreamingQuery:
        """Start a query that runs until it is stopped."""
        return self._written({"processingTime": "0 seconds"}, **options)

    def rows(self) -> Rows:
        return rows(self._spark.read.parquet(str(self.folder / "out")))

    def _written(self, trigger: dict[str, Any], **options: Any) -> StreamingQuery:
        reader = self._spark.readStream.format(self.source).options(
            **{
                "kafka.bootstrap.servers": self._kafka.bootstrap_servers,
                **as_text({**self.options, **options}),
            }
        )
        query = (
            reader.load()
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(**trigger)
            .start()
        )
        if "processingTime" not in trigger:
            try:
                query.awaitTermination(60)
            finally:
                query.stop()
            self.batches += [progress["numInputRows"] for progress in query.recentProgress]
            self.progress += [json.loads(progress.json) for progress in query.recentProgress]
        return query


Make = Callable[..., list[Stream]]


def same(streams: list[Stream], **options: Any) -> Rows:
    own, tested = (stream.run(**options) for stream in streams)
    assert tested == own
    assert streams[0].batches == streams[1].batches
    return tested
