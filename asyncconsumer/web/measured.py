"""The metrics of one consumer, app or feeder, for the exporters that its user chooses."""

import abc
import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.metrics.measurements import Sample
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.web.metrics import needs_prometheus, samples_of
from asyncconsumer.web.status import Status

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

_TIMEOUT: Final = 5.0  # seconds for the event loop to answer another thread


class Metrics:
    """The metrics of a consumer, Kafka app, connector or feeder.

    Any thread may read the metrics. A thread other than that of the event loop waits up to 5 s for
    the event loop.
    """

    def __init__(self, recorder: Recorder, source: Callable[[], Mapping[str, Status]]) -> None:
        self._recorder = recorder
        self._source = source

    def register(self, registry: "CollectorRegistry | None" = None) -> "CollectorRegistry":
        """Add the metrics to a registry of prometheus-client, by default a new one.

        Return the registry.
        """
        try:
            from asyncconsumer.metrics.prometheus import SampleCollector, registry_of
        except ModuleNotFoundError as error:
            raise needs_prometheus() from error
        if registry is None:
            return registry_of(self.samples)
        registry.register(SampleCollector(self.samples))
        return registry

    def export(self, meter_provider: "MeterProvider | None" = None) -> None:
        """Add the metrics to OpenTelemetry, by default to its global meter provider.

        Call this once, before the consumer is opened.
        """
        try:
            from asyncconsumer.metrics.opentelemetry import export
        except ModuleNotFoundError as error:
            raise ConfigError(
                "Metrics for OpenTelemetry need its API: pip install 'asyncconsumer[otel]'"
            ) from error
        groups = (status.group for status in self._source().values())
        export(self._recorder, self.samples, next(groups, None), meter_provider)

    def samples(self) -> list[Sample]:
        """Return the current value of each series."""
        loop = self._recorder.loop
        if loop is None or loop is _running_loop() or not loop.is_running():
            return self._read()
        reading: Future[list[Sample]] = Future()

        def read() -> None:
            try:
                reading.set_result(self._read())
            except Exception as error:  # noqa: BLE001 - raised in the thread that asked
                reading.set_exception(error)

        loop.call_soon_threadsafe(read)
        return reading.result(_TIMEOUT)

    def _read(self) -> list[Sample]:
        return list(samples_of(self._source()))


class Measured(abc.ABC):
    """A base class of consumers, Kafka apps and feeders, which have a status and metrics."""

    @property
    @abc.abstractmethod
    def recorder(self) -> Recorder:
        """The recorder of counters and histograms."""

    @abc.abstractmethod
    def status(self) -> Status:
        """Return health and lag as plain values."""

    def status_by_worker(self) -> Mapping[str, Status]:
        """Return the status of each worker by name. A single process has the name ``""``."""
        return {"": self.status()}

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics, to register with prometheus-client or to export to OpenTelemetry."""
        return Metrics(self.recorder, self.status_by_worker)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
