"""A user's function that writes Delta with Spark: a repeated batch is written once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from asyncconsumer.errors import SinkFailed
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.spark import DELTA, delta_jars, spark_session
from tests.support.feeder_tables import make_feeder
from tests.support.real_consumer import send


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[1]", DELTA, jars=asyncio.run(delta_jars())) as session:
        yield session


async def test_a_repeated_batch_is_written_once(
    kafka: KafkaHandle, tmp_path: Path, spark: SparkSession
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100))
    tried: list[str] = []

    def append(frame: DataFrame, batch: FeedBatch) -> None:
        options = {"txnAppId": batch.txn_app_id, "txnVersion": str(batch.txn_version)}
        frame.write.format("delta").options(**options).mode("append").save(str(tmp_path))
        tried.append(batch.id)

    def append_and_die(frame: DataFrame, batch: FeedBatch) -> None:
        append(frame, batch)
        raise RuntimeError("the process dies after the write")

    with pytest.raises(SinkFailed, match="dies after the write"):
        async with make_feeder(
            kafka, topic, group, spark=spark, write=append_and_die, retries=0, max_in_flight=1
        ) as feeder:
            await feeder.run()
    async with make_feeder(kafka, topic, group, spark=spark, write=append) as feeder:
        await feeder.caught_up()
    assert tried[0] == tried[1]
    assert len(set(tried)) == 2
    rows = spark.read.format("delta").load(str(tmp_path)).collect()
    assert sorted(int(row.value) for row in rows) == list(range(100))
