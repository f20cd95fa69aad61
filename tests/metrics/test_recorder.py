"""Recorders, and their values in the text format of Prometheus."""

import json

import pytest

from asyncconsumer.errors import OffsetOutOfRange
from asyncconsumer.metrics.families import FAMILIES, SECONDS
from asyncconsumer.metrics.measurements import ALL, MAX_PARTITIONS, SampleRow, samples
from asyncconsumer.metrics.prometheus import text_of
from asyncconsumer.metrics.recorder import MAX_ERROR_TYPES, OTHER, Recorder
from asyncconsumer.types import TopicPartition
from tests.support.metric_samples import Scrape

pytestmark = pytest.mark.fast
A = TopicPartition("t", 0)


def scraped(recorder: Recorder) -> Scrape:
    as_sent = json.loads(json.dumps(recorder.measurements()))  # encoded as a worker sends it
    return Scrape(text_of(lambda: samples(as_sent, {"group": "g"})))


def test_a_histogram_has_cumulative_buckets_and_a_sum() -> None:
    recorder = Recorder()
    duration = recorder.histogram("handler_duration_seconds", "bill")
    duration.observe(0.005)  # a bound belongs to its bucket
    duration.observe(0.002, 8)
    duration.observe(0.3)
    duration.observe(99.0)
    read = scraped(recorder)
    name, labels = "handler_duration_seconds", {"handler": "bill", "group": "g"}
    buckets = [read(f"{name}_bucket", le=str(bound), **labels) for bound in SECONDS]
    assert buckets == [9, 9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10]
    assert read(f"{name}_bucket", le="+Inf", **labels) == read(f"{name}_count") == 11
    assert read(f"{name}_sum") == pytest.approx(99.321)
    assert read.families[f"asyncconsumer_{name}"].type == "histogram"


def test_errors_are_counted_by_type() -> None:
    recorder = Recorder()
    for error in (ValueError("x"), ValueError("y"), KeyError()):
        recorder.count_error("handler_errors_total", error, "bill")
    recorder.count_error("fetch_errors_total", OffsetOutOfRange("t[0]"))
    read = scraped(recorder)
    assert read("handler_errors_total", handler="bill", error="ValueError") == 2
    assert read("handler_errors_total", error="KeyError") == 1
    assert read("fetch_errors_total", error="OffsetOutOfRange") == 1


def test_too_many_error_types_are_counted_together() -> None:
    recorder = Recorder()
    for number in range(MAX_ERROR_TYPES + 7):
        kind = type(f"Error{number}", (Exception,), {})
        recorder.count_error("handler_errors_total", kind(), "bill")
    recorder.count_error("handler_errors_total", ValueError(), "ship")
    read = scraped(recorder)
    assert read("handler_errors_total", handler="bill", error=OTHER) == 7
    assert len(read.label_values("handler_errors_total", "error")) == MAX_ERROR_TYPES + 2


def test_the_delivery_latency_counts_from_the_record_timestamp() -> None:
    recorder = Recorder(lambda: 10_000)
    meter = recorder.meter(A)
    meter.begin(7_500)
    meter.begin(11_000)  # the clock of its producer is ahead
    meter.begin(-1)  # no timestamp
    read = scraped(recorder)
    assert read("delivery_latency_seconds_sum") == 2.5
    assert read("delivery_latency_seconds_count") == 2
    assert meter.last_timestamp == 11_000


def test_values_of_a_revoked_partition_are_dropped() -> None:
    recorder = Recorder()
    recorder.meter(A).add(5, 100)
    assert recorder.meter(A).records == 5
    recorder.forget([A])
    assert not dict(recorder.meters())


def partition_rows(topics: int, partitions: int) -> list[SampleRow]:
    return [(f"t{topic}", number, 2) for topic in range(topics) for number in range(partitions)]


def values(name: str, rows: list[SampleRow]) -> dict[tuple[str, str], object]:
    return {
        (sample.labels["topic"], sample.labels["partition"]): sample.value
        for sample in samples({name: rows}, {})
    }


def test_many_partitions_have_one_series_per_topic() -> None:
    assert len(values("lag_records", partition_rows(2, MAX_PARTITIONS // 2))) == MAX_PARTITIONS
    many = partition_rows(2, MAX_PARTITIONS)
    total = 2 * MAX_PARTITIONS
    assert values("lag_records", many) == {("t0", ALL): total, ("t1", ALL): total}
    assert values("lag_seconds", many) == {("t0", ALL): 2, ("t1", ALL): 2}
    topics = partition_rows(MAX_PARTITIONS + 1, 1)
    assert values("lag_records", topics) == {(ALL, ALL): total + 2}


def test_metrics_of_a_newer_version_are_skipped() -> None:
    assert list(samples({"of_a_newer_version": [(1,)]}, {})) == []


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, family in FAMILIES.items():
        assert name.endswith("_total") == (family.kind == "counter"), name
        assert family.help.endswith("."), name
        assert bool(family.bounds) == (family.kind == "histogram"), name
        assert list(family.bounds) == sorted(family.bounds)
    counted = {"seconds", "bytes"}
    for name, family in FAMILIES.items():
        if family.kind == "histogram":
            assert name.rpartition("_")[2] in counted, name
