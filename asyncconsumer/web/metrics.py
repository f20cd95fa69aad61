"""Metrics in the Prometheus text format, written without a client library."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from asyncconsumer.web.status import Status

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HANDLER_GAUGES: Final = {"running", "in_flight", "in_flight_bytes"}  # all others are counters
STATES: Final = (
    "new",
    "starting",
    "running",
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
_HELP: Final = {
    "live": "1 if the consumer works or can recover by itself, 0 if it needs a restart.",
    "ready": "1 if the consumer has its assignment and makes progress, otherwise 0.",
    "state": "1 for the current state, 0 for all others.",
    "lag_records": "Records of a partition that are not consumed and processed yet.",
    "seconds_since_heartbeat": "Seconds since the last successful heartbeat to the coordinator.",
    "seconds_since_fetch": "Seconds since the last fetch response of a broker.",
    "seconds_since_progress": "Seconds since the last record was consumed.",
    "handler_running": "Handler calls that are running now.",
    "handler_in_flight": "Records that are queued for a handler or being processed.",
    "handler_in_flight_bytes": "Bytes of the records that are queued or being processed.",
    "handler_finished_total": "Handler calls that succeeded.",
    "handler_failed_total": "Handler calls that failed.",
    "handler_retried_total": "Handler failures after which the record was retried.",
    "handler_parked_total": "Records that were written to a retry topic.",
    "handler_dead_letters_total": "Records that were written to a dead letter topic.",
    "handler_skipped_total": "Records that were skipped after all retries failed.",
    "events_total": "Events so far, by type.",
}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


def metrics(parts: Mapping[str, Status]) -> str:
    """Return the metrics of workers as text. `parts` maps worker names to their status.

    An empty name gives no `worker` label.
    """
    families: dict[str, list[_Sample]] = {}
    for worker, status in parts.items():
        common = {"worker": worker, "group": status.group}
        common_labels = {name: value for name, value in common.items() if value}
        for name, labels, value in _samples(status):
            sample = _Sample(name, {**common_labels, **labels}, value)
            families.setdefault(name, []).append(sample)
    lines = []
    for name, samples in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        if name in _HELP:
            lines.append(f"# HELP asyncconsumer_{name} {_HELP[name]}")
        lines.append(f"# TYPE asyncconsumer_{name} {kind}")
        lines += map(_line, samples)
    return "".join(f"{line}\n" for line in lines)


def _samples(status: Status) -> Iterator[_Sample]:
    yield _Sample("live", {}, status.live)
    yield _Sample("ready", {}, status.ready)
    for state in dict.fromkeys((*STATES, status.state)):
        yield _Sample("state", {"state": state}, state == status.state)
    for topic, partitions in status.lag.items():
        for partition, lag in partitions.items():
            if lag is not None:
                yield _Sample("lag_records", {"topic": topic, "partition": partition}, lag)
    for event, seconds in status.seconds_since.items():
        if seconds is not None:
            yield _Sample(f"seconds_since_{event}", {}, round(seconds, 3))
    for handler, values in status.handlers.items():
        for key, value in values.items():
            name = f"handler_{key}" if key in _HANDLER_GAUGES else f"handler_{key}_total"
            yield _Sample(name, {"handler": handler}, value)
    for event, count in status.events.items():
        yield _Sample("events_total", {"event": event}, count)


def _line(sample: _Sample) -> str:
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels.items()]
    labels = f"{{{','.join(pairs)}}}" if pairs else ""
    return f"asyncconsumer_{sample.name}{labels} {sample.value + 0}"
