"""`asyncconsumer bench` on a real broker, as a program."""

import json
from typing import Any

import pytest

from asyncconsumer.cli.bench.runs import read_topic
from asyncconsumer.cli.progress import ProgressDisplay
from asyncconsumer.testing.handles import KafkaHandle
from tests.integration.cli.test_kafka_groups import run


async def figures(kafka: KafkaHandle, *arguments: str) -> dict[str, Any]:
    """Return the figures that a bench command prints."""
    servers = ("-b", kafka.bootstrap_servers)
    report: dict[str, Any] = json.loads(await run("bench", *arguments, *servers, "--json"))
    return report


async def test_bench_produce_and_consume_report_records_bytes_and_latency(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic(partitions=2)
    written = await figures(kafka, "produce", topic, "--count", "3000", "--size", "50", "-z", "lz4")
    assert (written["records"], written["mb"]) == (3000, 0.15)
    assert written["latency_p50_ms"] <= written["latency_p99_ms"] <= written["latency_max_ms"]
    for read_as in ("records", "batches", "chunks", "arrow"):
        read = await figures(kafka, "consume", topic, "--as", read_as)
        assert read["records"] == 3000
        assert read["mb"] >= 0.15  # Arrow counts the offsets of values, too
        assert read["records_per_second"] == pytest.approx(3000 / read["seconds"])


async def test_bench_consume_stops_at_a_count_or_a_duration(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await figures(kafka, "produce", topic, "--count", "1000")
    assert (await figures(kafka, "consume", topic, "--count", "70"))["records"] == 70
    endless = {"bootstrap_servers": kafka.bootstrap_servers, "stop_at": None}
    report = await read_topic(topic, "records", None, 1.0, endless, ProgressDisplay(None, "read"))
    assert report.records == 1000
    assert report.seconds >= 1.0


async def test_bench_latency_measures_from_producer_to_consumer(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=2)
    report = await figures(kafka, "latency", topic, "--count", "60", "--rate", "200")
    assert report["records"] == 60
    assert report["seconds"] >= 59 / 200
    assert 0 < report["latency_p50_ms"] <= report["latency_max_ms"]


@pytest.mark.parametrize("command", ["consume", "latency"])
async def test_an_unknown_topic_is_an_error(kafka: KafkaHandle, command: str) -> None:
    await run("bench", command, "nowhere", "-b", kafka.bootstrap_servers, code=1)
