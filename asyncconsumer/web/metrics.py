"""The metrics of statuses, as samples and in the text format of Prometheus."""

from collections.abc import Iterator, Mapping
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.metrics.families import FAMILIES
from asyncconsumer.metrics.measurements import Measurements, Sample, SampleRow, samples
from asyncconsumer.web.status import Status

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
STATES: Final = (
    "new",
    "starting",
    "running",
    "paused",
    "idle",
    "consuming",
    "rebalancing",
    "stalled",
    "disconnected",
    "handler_bound",
    "fenced",
    "draining",
    "failed",
    "ended",
    "closed",
)
"""All values of `Status.state`. Each has a series, whose value is 1 for the current state."""


def metrics(parts: Mapping[str, Status]) -> str:
    """Return the metrics of workers in the text format of Prometheus.

    `parts` has the status of each worker by its name. Raise ConfigError if prometheus-client is not
    installed.
    """
    try:
        from asyncconsumer.metrics.prometheus import text_of
    except ModuleNotFoundError as error:
        raise needs_prometheus() from error
    return text_of(lambda: samples_of(parts))


def needs_prometheus() -> ConfigError:
    """Return the ConfigError to raise if prometheus-client is not installed."""
    return ConfigError(
        "Metrics in the format of Prometheus need prometheus-client: "
        "pip install 'asyncconsumer[metrics]'"
    )


def samples_of(parts: Mapping[str, Status]) -> Iterator[Sample]:
    """Yield the samples of workers, whose statuses are given by worker name.

    A worker with an empty name gets no label `worker`.
    """
    for worker, status in parts.items():
        labels = {"worker": worker, "group": status.group}
        common = {name: value for name, value in labels.items() if value}
        yield from samples(_measurements(status), common)


def _measurements(status: Status) -> Measurements:
    """Return the measurements in a status, and its health, lag and counters in the same form."""
    rows: dict[str, list[SampleRow]] = {
        "live": [(status.live,)],
        "ready": [(status.ready,)],
        "state": [
            (state, state == status.state) for state in dict.fromkeys((*STATES, status.state))
        ],
        "lag_records": [
            (topic, partition, lag)
            for topic, partitions in status.lag.items()
            for partition, lag in partitions.items()
            if lag is not None
        ],
        "events_total": list(status.events.items()),
    }
    for event, seconds in status.seconds_since.items():
        if seconds is not None:
            rows[f"{event}_age_seconds"] = [(round(seconds, 3),)]
    for handler, values in status.handlers.items():
        for key, value in values.items():
            gauge = f"handler_{key}"
            name = gauge if gauge in FAMILIES else f"{gauge}_total"
            rows.setdefault(name, []).append((handler, value))
    return {**rows, **status.measurements}
