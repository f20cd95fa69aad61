"""Rows that Python workers send over Unix sockets, which the README recommends."""

import asyncio
import os
from pathlib import Path

from asyncconsumer.spark import KafkaSource
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.spark import spark_session
from tests.support.spark_queries import TESTED, fill, frame, rows

RECOMMENDED = {"spark.python.unix.domain.socket.enabled": "true"}


def test_batches_and_streams_are_read_over_unix_sockets(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic = asyncio.run(kafka.topic(partitions=3))
    asyncio.run(fill(kafka, topic, 90, 3))
    with spark_session(config=RECOMMENDED) as spark:
        spark.dataSource.register(KafkaSource)
        kinds = spark.sparkContext.parallelize([0], 1)
        assert kinds.map(lambda _: os.environ["PYTHON_UNIX_DOMAIN_ENABLED"]).collect() == ["True"]
        read = rows(frame(spark, TESTED, kafka, subscribe=topic, recordsPerTask=1))
        assert [(row[3], row[4]) for row in read] == [(p, o) for p in range(3) for o in range(30)]
        query = (
            spark.readStream.format(TESTED)
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"), format="parquet")
        )
        assert query.awaitTermination(60)
        assert rows(spark.read.parquet(str(tmp_path / "rows"))) == read
