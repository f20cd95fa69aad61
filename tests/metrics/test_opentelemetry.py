"""Metrics through the OpenTelemetry SDK."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from asyncconsumer import Consumer
from asyncconsumer.metrics.families import SECONDS
from asyncconsumer.metrics.measurements import Sample
from asyncconsumer.metrics.opentelemetry import export
from asyncconsumer.metrics.recorder import Recorder

pytestmark = pytest.mark.fast

GROUP = "messaging.consumer.group.name"


class Collected:
    """A reader of the SDK, and the data points that it collects."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def test_observable_instruments_have_the_names_of_the_conventions() -> None:
    collected, reads = Collected(), list[int]()

    def source() -> list[Sample]:
        reads.append(len(reads))
        place = {"group": "g", "topic": "orders", "partition": "3"}
        return [
            Sample("consumed_records_total", place, 10 * len(reads)),
            Sample("lag_seconds", place, 1.5),
        ]

    export(Recorder(), source, "g", collected.provider)
    (point,) = collected.points("messaging.client.consumed.messages")
    assert dict(point.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        GROUP: "g",
    }
    assert point.value == 10
    assert len(reads) == 1  # once for all instruments
    (point,) = collected.points("asyncconsumer.lag_seconds")
    assert point.value == 1.5
    assert len(reads) == 2
    (point,) = collected.points("messaging.client.consumed.messages")
    assert point.value == 30


def test_histograms_record_each_value() -> None:
    collected, recorder = Collected(), Recorder()
    export(recorder, list, "g", collected.provider)
    recorder.histogram("handler_duration_seconds", "bill").observe(0.03, 4)
    recorder.fetch_duration.observe(0.2)
    recorder.commit_duration.observe(7.0)
    (process,) = collected.points("messaging.process.duration")
    assert (process.count, process.sum) == (4, pytest.approx(0.12))
    assert tuple(process.explicit_bounds) == SECONDS
    assert process.attributes["asyncconsumer.handler"] == "bill"
    operations = {
        point.attributes["messaging.operation.name"]: point.sum
        for point in collected.points("messaging.client.operation.duration")
    }
    assert operations == {"poll": 0.2, "commit": 7.0}
    assert process.attributes[GROUP] == "g"


def test_a_consumer_is_exported_before_it_is_opened() -> None:
    collected = Collected()
    consumer = Consumer("orders", bootstrap_servers="k:9092", group_id="billing")
    consumer.metrics.export(collected.provider)
    (live,) = collected.points("asyncconsumer.live")
    assert (live.value, live.attributes[GROUP]) == (0, "billing")
