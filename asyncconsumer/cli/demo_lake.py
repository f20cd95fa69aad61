"""The end of the demo: a feeder lands what a group reads, and Spark asks about it."""

import asyncio
import tempfile
import time
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.table import Table

from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.testing.servers import Kafka

_WIDTH = 40  # of the longest bar
_CUSTOMERS = 8


async def show_lake(console: Console, kafka: Kafka, topic: str, records: int) -> None:
    """Feed a folder, and query it, and the topic itself, with Spark."""
    if missing := [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]:
        console.print(f"  for Spark: pip install 'asyncconsumer[spark]' ({', '.join(missing)})")
        return
    with tempfile.TemporaryDirectory(prefix="asyncconsumer-lake-") as folder:
        await _feed(console, kafka, topic, folder, records)
        with console.status("starting Spark ..."):
            found = await asyncio.to_thread(_ask, folder, kafka.bootstrap_servers, topic)
        _show(console, *found)


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
        while feeder.stats().records < records:  # noqa: ASYNC110 - a demo may look
            await asyncio.sleep(0.02)
    passed = time.monotonic() - started
    landed, batches = feeder.stats().records, feeder.stats().batches
    console.print(
        f"  a feeder landed {landed:,} records in {batches} batches, each exactly once, as Parquet "
        f"in {passed:.1f} s"
    )


def _ask(folder: str, servers: str, topic: str) -> tuple[list[Any], int, float]:
    from asyncconsumer.spark import KafkaSource
    from asyncconsumer.testing.servers.spark import spark_session

    with spark_session() as spark:
        started = time.monotonic()
        landed = spark.read.parquet(folder).selectExpr("cast(key as string) customer")
        best = landed.groupBy("customer").count().orderBy("count", "customer", ascending=False)
        rows = best.limit(_CUSTOMERS).collect()
        spark.dataSource.register(KafkaSource)
        straight = (
            spark.read.format("asyncconsumer")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .load()
            .count()
        )
        return rows, straight, time.monotonic() - started


def _show(console: Console, rows: list[Any], straight: int, passed: float) -> None:
    most = max(row["count"] for row in rows)
    table = Table("customer", "orders", "", title="Spark: who ordered most")
    for row in rows:
        bar = "█" * max(1, round(_WIDTH * row["count"] / most))
        table.add_row(row["customer"], f"{row['count']:,}", f"[cyan]{bar}[/]")
    console.print(table)
    console.print(
        f'  and straight from Kafka, format("asyncconsumer"), no jar: {straight:,} records '
        f"(both queries in {passed:.1f} s)"
    )
