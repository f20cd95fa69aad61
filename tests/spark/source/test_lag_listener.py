"""The lag of streaming queries, computed from Spark's progress reports."""

import json
import logging
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import generate_latest

from asyncconsumer.spark import LagListener, TopicLag

pytestmark = pytest.mark.fast

RUN = UUID(int=7)


def progress(
    second: int, read: dict[str, Any], latest: dict[str, Any], name: str | None = "orders to lake"
) -> Any:
    report = {
        "id": "an-id",
        "runId": str(RUN),
        "name": name,
        "timestamp": f"2024-01-01T00:00:{second:02}.000Z",
        "sources": [{"endOffset": read, "latestOffset": latest}, {"endOffset": 7}],
    }
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report)))


def test_lag_is_measured_by_topic(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    listener = LagListener()
    listener.onQueryProgress(progress(0, {"t": {"0": 5}}, {"t": {"0": 5}, "u": {"0": 0}}))
    assert listener.lag() == {"orders to lake": {"t": TopicLag(0, 0.0), "u": TopicLag(0, 0.0)}}
    ends = {"t": {"0": 25, "1": 3}}
    listener.onQueryProgress(progress(10, {"t": {"0": 5, "1": 0}, "topic ids": {}}, ends))
    assert listener.lag() == {"orders to lake": {"t": TopicLag(23, 10.0)}}
    assert "is 23 records and 10.0 s behind the end of topic t" in caplog.text
    listener.onQueryProgress(progress(20, {"t": {"0": 15, "1": 3}}, ends))
    # offset 15 was written halfway between the reports of 5 and of 25
    assert listener.lag() == {"orders to lake": {"t": TopicLag(10, 15.0)}}
    listener.onQueryProgress(progress(30, ends, ends))
    assert listener.lag() == {"orders to lake": {"t": TopicLag(0, 0.0)}}
    listener.onQueryProgress(progress(40, {"t": {"0": 2}}, {"t": {"0": 4}}))  # re-created
    assert listener.lag() == {"orders to lake": {"t": TopicLag(2, 0.0)}}
    listener.onQueryTerminated(SimpleNamespace(runId=RUN))  # type: ignore[arg-type]
    assert listener.lag() == {}


def test_a_long_lag_keeps_its_start_in_bounded_memory() -> None:
    listener = LagListener()
    for number in range(3_000):
        report = progress(number % 60, {"t": {"0": 0}}, {"t": {"0": number + 1}}, None)
        minute = f"00:{number // 60:02}:"
        report.progress.json = report.progress.json.replace("00:00:", minute)
        listener.onQueryProgress(report)
    assert listener.lag() == {"an-id": {"t": TopicLag(3_000, 2_999.0)}}
    assert sum(len(ends._ends) for ends in listener._queries[str(RUN)]._ends.values()) < 1_100


def test_lag_is_exported_to_prometheus_and_opentelemetry() -> None:
    listener, reader = LagListener(), InMemoryMetricReader()
    registry = listener.metrics.register()
    listener.metrics.export(MeterProvider([reader]))
    listener.onQueryProgress(progress(0, {"t": {"0": 5}}, {"t": {"0": 7}}))
    text = generate_latest(registry).decode()
    labels = 'query="orders to lake",topic="t"'
    assert f"asyncconsumer_query_lag_records{{{labels}}} 2.0" in text
    assert f"asyncconsumer_query_lag_seconds{{{labels}}} 0.0" in text
    data = reader.get_metrics_data()
    assert data is not None
    assert "asyncconsumer.query_lag_records" in data.to_json()
