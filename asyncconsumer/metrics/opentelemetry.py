"""The exporter for OpenTelemetry: instruments named by its messaging conventions.

Only the OpenTelemetry API is used. Values are exported only if the application sets up an SDK.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from opentelemetry.metrics import (
    CallbackOptions,
    Histogram,
    Meter,
    MeterProvider,
    Observation,
    get_meter,
)

from asyncconsumer.metrics.families import FAMILIES, Family
from asyncconsumer.metrics.measurements import Sample
from asyncconsumer.metrics.recorder import Histogram as RecordedHistogram
from asyncconsumer.metrics.recorder import Recorder

_CONSUMED: Final = "messaging.client.consumed.messages"
_OPERATION: Final = "messaging.client.operation.duration"
_PROCESS: Final = "messaging.process.duration"
_NAMES: Final = {
    "consumed_records_total": _CONSUMED,
    "fetch_duration_seconds": _OPERATION,
    "commit_duration_seconds": _OPERATION,
    "handler_duration_seconds": _PROCESS,
}
_OPERATIONS: Final = {  # operation name and type
    "consumed_records_total": ("poll", "receive"),
    "fetch_duration_seconds": ("poll", "receive"),
    "commit_duration_seconds": ("commit", "settle"),
    "handler_duration_seconds": ("process", "process"),
}
_ATTRIBUTES: Final = {
    "group": "messaging.consumer.group.name",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "error": "error.type",
}
_UNITS: Final = {"seconds": "s", "bytes": "By"}


class InstrumentReader:
    """A reader of samples for observable instruments, which OpenTelemetry reads one after another.

    All instruments get values of the same moment, until one of them is read again. Then new samples
    are taken.
    """

    def __init__(self, source: Callable[[], Iterable[Sample]]) -> None:
        self._source = source
        self._samples: dict[str, list[Sample]] = {}
        self._read: set[str] = set()
        self._is_read = False

    def observe(self, name: str, _: CallbackOptions) -> Iterator[Observation]:
        """Yield the current values of a metric."""
        if not self._is_read or name in self._read:
            self._samples, self._read, self._is_read = {}, set(), True
            for sample in self._source():
                self._samples.setdefault(sample.name, []).append(sample)
        self._read.add(name)
        for sample in self._samples.get(name, ()):
            assert isinstance(sample.value, int | float)
            yield Observation(sample.value + 0, _attributes(name, sample.labels))


def export(
    recorder: Recorder,
    source: Callable[[], Iterable[Sample]],
    group: str | None,
    provider: MeterProvider | None,
) -> None:
    """Create an OpenTelemetry instrument for each metric.

    `source` returns the samples of counters and gauges. Values of histograms are passed on when
    they are recorded.
    """
    meter, reader = get_meter("asyncconsumer", meter_provider=provider), InstrumentReader(source)
    histograms: dict[str, Histogram] = {}
    by_instrument: dict[str, Histogram] = {}
    for name, family in FAMILIES.items():
        instrument = _NAMES.get(name, f"asyncconsumer.{name.removesuffix('_total')}")
        if family.kind == "histogram":
            if instrument not in by_instrument:
                by_instrument[instrument] = _histogram(meter, instrument, name, family)
            histograms[name] = by_instrument[instrument]
        else:
            counts = family.kind == "counter"
            create = meter.create_observable_counter if counts else meter.create_observable_gauge
            observe = partial(reader.observe, name)
            create(instrument, [observe], unit=_unit(name), description=family.help)

    def record(histogram: RecordedHistogram, value: float) -> None:
        labels = dict(zip(FAMILIES[histogram.name].labels, histogram.labels, strict=True))
        if group:
            labels["group"] = group
        histograms[histogram.name].record(value, _attributes(histogram.name, labels))

    recorder.listeners.append(record)


def _histogram(meter: Meter, instrument: str, name: str, family: Family) -> Histogram:
    return meter.create_histogram(
        instrument,
        unit=_unit(name),
        description=family.help,
        explicit_bucket_boundaries_advisory=family.bounds,
    )


def _unit(name: str) -> str:
    if name in _NAMES and _NAMES[name] == _CONSUMED:
        return "{message}"
    return _UNITS.get(name.removesuffix("_total").rpartition("_")[2], "1")


def _attributes(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels under the attribute names of OpenTelemetry's messaging conventions.

    The attribute for the operation of the metric is added.
    """
    attributes = {
        _ATTRIBUTES.get(label, f"asyncconsumer.{label}"): labels[label] for label in labels
    }
    attributes["messaging.system"] = "kafka"
    if name in _OPERATIONS:
        operation, kind = _OPERATIONS[name]
        attributes["messaging.operation.name"] = operation
        attributes["messaging.operation.type"] = kind
    return attributes
