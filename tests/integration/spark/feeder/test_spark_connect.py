"""A Spark Connect session that a function of a feeder writes with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.feeder_tables import make_feeder
from tests.support.real_consumer import send


@pytest.fixture(scope="module")
def remote() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote("local[1]").getOrCreate()
    yield session
    session.stop()


async def test_a_function_gets_remote_data_frames(
    kafka: KafkaHandle, tmp_path: Path, remote: Any
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(100), 2)
    ids: list[str] = []

    def append(frame: Any, batch: FeedBatch) -> None:
        ids.append(batch.id)
        frame.write.mode("overwrite").parquet(str(tmp_path / batch.id))

    async with make_feeder(kafka, topic, group, spark=remote, write=append) as feeder:
        await feeder.caught_up()
    assert "connect" in type(remote).__module__
    rows = remote.read.parquet(*(str(tmp_path / each) for each in ids))
    values = rows.selectExpr("cast(value as string) as v").collect()
    assert sorted(int(row.v) for row in values) == list(range(100))
