"""The Spark part of the demo: a feeder writes Parquet files, and Spark queries them."""

import asyncio
import tempfile
import time
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.table import Table

from asyncconsumer.aio.wait import wait_until
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.testing.servers import Kafka

_BAR_WIDTH = 40  # of the longest bar, in characters
_CUSTOMERS = 8


async def show_lake(console: Console, kafka: Kafka, topic: str, records: int) -> None:
    """Write a topic to a folder, then query the folder and the topic itself with Spark."""
    if missing := [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]:
        console.print(
            f"  skipped Spark: {' and '.join(missing)} not installed; "
            "pip install 'asyncconsumer[spark]'"
        )
        return
    with tempfile.TemporaryDirectory(prefix="asyncconsumer-lake-") as folder:
        await _feed(console, kafka, topic, folder, records)
        with console.status("starting Spark ..."):
            result = await asyncio.to_thread(_query, folder, kafka.bootstrap_servers, topic)
        _show(console, *result)


async def _feed(console: Console, kafka: Kafka, topic: str, folder: str, records: int) -> None:
    from asyncconsumer.spark import LandingFolder, SparkFeeder

    consumer: Consumer[bytes, bytes] = Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="lake",
        auto_offset_reset="earliest",
        commit_policy="manual",
    )
    started = time.monotonic()
    async with SparkFeeder(consumer, LandingFolder(folder), max_wait_ms=200) as feeder:
        await wait_until(lambda: feeder.stats().records >= records, every=0.02)
    seconds = time.monotonic() - started
    written, batches = feeder.stats().records, feeder.stats().batches
    console.print(
        f"  a feeder wrote {written:,} records exactly once, in {batches} batches of Parquet, "
        f"in {seconds:.1f} s"
    )


def _query(folder: str, servers: str, topic: str) -> tuple[list[Any], int, float]:
    from asyncconsumer.spark import KafkaSource
    from asyncconsumer.testing.servers.spark import spark_session

    with spark_session() as spark:
        started = time.monotonic()
        orders = spark.read.parquet(folder).selectExpr("cast(key as string) customer")
        counts = orders.groupBy("customer").count().orderBy("count", "customer", ascending=False)
        rows = counts.limit(_CUSTOMERS).collect()
        spark.dataSource.register(KafkaSource)
        in_topic = (
            spark.read.format("asyncconsumer")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .load()
            .count()
        )
        return rows, in_topic, time.monotonic() - started


def _show(console: Console, rows: list[Any], in_topic: int, seconds: float) -> None:
    largest = max(row["count"] for row in rows)
    table = Table("customer", "orders", "", title="Spark: orders by customer")
    for row in rows:
        bar = "█" * max(1, round(_BAR_WIDTH * row["count"] / largest))
        table.add_row(row["customer"], f"{row['count']:,}", f"[cyan]{bar}[/]")
    console.print(table)
    console.print(
        f'  Spark read {in_topic:,} records from Kafka with format("asyncconsumer"), without a jar '
        f"(both queries took {seconds:.1f} s)"
    )
