"""Metrics in the Prometheus text format, written without a client library."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from asyncconsumer.web.status import Status

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_GAUGES_OF_A_HANDLER: Final = {"running", "in_flight", "in_flight_bytes"}  # all others are counters
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
"""All values of `Status.state`. Each is a series, which is 1 for the current state."""
_HELP: Final = {
    "live": "1 unless it does not get well by itself.",
    "ready": "1 if it knows its share and that moves.",
    "state": "1 for the state that it is in, 0 for all others.",
    "lag_records": "Records of a partition that are still to be read or finished.",
    "seconds_since_heartbeat": "Seconds since the coordinator of the group last heard of it.",
    "seconds_since_fetch": "Seconds since a broker last answered a fetch.",
    "seconds_since_progress": "Seconds since records last moved.",
    "handler_running": "Calls of a handler that run now.",
    "handler_in_flight": "Records in hand, worked on or not yet.",
    "handler_in_flight_bytes": "Bytes of the records in hand.",
    "handler_finished_total": "Calls of a handler that ended without a failure.",
    "handler_failed_total": "Calls of a handler that failed.",
    "handler_retried_total": "Failures after which a record is tried again.",
    "handler_parked_total": "Records that were written to a retry topic.",
    "handler_dead_letters_total": "Records that were written to a dead letter topic.",
    "handler_skipped_total": "Records that were given up.",
    "events_total": "What happened so far, by its kind.",
}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


def metrics(parts: Mapping[str, Status]) -> str:
    """Return the metrics of workers by name. An empty name gives no `worker` label."""
    families: dict[str, list[_Sample]] = {}
    for worker, status in parts.items():
        labels_of = {"worker": worker, "group": status.group}
        mine = {name: value for name, value in labels_of.items() if value}
        for name, labels, value in _samples(status):
            families.setdefault(name, []).append(_Sample(name, {**mine, **labels}, value))
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
    for what, seconds in status.seconds_since.items():
        if seconds is not None:
            yield _Sample(f"seconds_since_{what}", {}, round(seconds, 3))
    for handler, values in status.handlers.items():
        for what, value in values.items():
            name = f"handler_{what}" if what in _GAUGES_OF_A_HANDLER else f"handler_{what}_total"
            yield _Sample(name, {"handler": handler}, value)
    for event, count in status.events.items():
        yield _Sample("events_total", {"event": event}, count)


def _line(sample: _Sample) -> str:
    named = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels.items()]
    labels = f"{{{','.join(named)}}}" if named else ""
    return f"asyncconsumer_{sample.name}{labels} {sample.value + 0}"
