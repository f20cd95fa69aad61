"""The exporter for Prometheus, a collector for prometheus-client."""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from math import inf

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from asyncconsumer.metrics.families import FAMILIES, PREFIX
from asyncconsumer.metrics.measurements import Sample

SampleSource = Callable[[], Iterable[Sample]]
"""A function that returns the current samples."""


class SampleCollector(Collector):
    """A collector that asks a function for samples whenever its registry is read."""

    def __init__(self, source: SampleSource) -> None:
        self._source = source

    def describe(self) -> Iterable[Metric]:
        """Return no metrics, so that registering the collector reads nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield a metric family for each metric that has samples, in a fixed order."""
        by_name: dict[str, list[Sample]] = {}
        for sample in self._source():
            by_name.setdefault(sample.name, []).append(sample)
        for name, family in FAMILIES.items():
            if name in by_name:
                metric = Metric(PREFIX + name.removesuffix("_total"), family.help, family.kind)
                for sample in by_name[name]:
                    _add(metric, sample)
                yield metric


def registry_of(source: SampleSource) -> CollectorRegistry:
    """Return a new registry with the samples of `source`."""
    registry = CollectorRegistry()
    registry.register(SampleCollector(source))
    return registry


def text_of(source: SampleSource) -> str:
    """Return the samples in the text format of Prometheus."""
    return generate_latest(registry_of(source)).decode()


def _text(bound: float) -> str:
    return "+Inf" if bound == inf else str(bound)


def _add(metric: Metric, sample: Sample) -> None:
    name, labels, value = PREFIX + sample.name, dict(sample.labels), sample.value
    if isinstance(value, int | float):
        metric.add_sample(name, labels, float(value))
        return
    total, *counts = value
    bounds = (*FAMILIES[sample.name].bounds, inf)
    for bound, count in zip(bounds, accumulate(counts), strict=True):
        metric.add_sample(f"{name}_bucket", {**labels, "le": _text(bound)}, count)
    metric.add_sample(f"{name}_count", labels, sum(counts))
    metric.add_sample(f"{name}_sum", labels, total)
