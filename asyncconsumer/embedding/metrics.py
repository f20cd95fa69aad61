"""Metrics in the text format of Prometheus, written by hand: a few lines, and no dependency."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from asyncconsumer.embedding.standing import Standing

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_GAUGES_OF_A_HANDLER: Final = {"running", "in_flight", "in_flight_bytes"}  # the rest only grows
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


def metrics(parts: Mapping[str, Standing]) -> str:
    """Of several workers by name; one that has no name has no such label."""
    families: dict[str, list[_Sample]] = {}
    for worker, standing in parts.items():
        mine = {"worker": worker} if worker else {}
        for name, labels, value in _samples(standing):
            families.setdefault(name, []).append(_Sample(name, {**mine, **labels}, value))
    lines = []
    for name, samples in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append(f"# TYPE asyncconsumer_{name} {kind}")
        lines += map(_line, samples)
    return "".join(f"{line}\n" for line in lines)


def _samples(standing: Standing) -> Iterator[_Sample]:
    yield _Sample("live", {}, standing.live)
    yield _Sample("ready", {}, standing.ready)
    yield _Sample("state", {"state": standing.state}, 1)
    for topic, partitions in standing.lag.items():
        for partition, lag in partitions.items():
            if lag is not None:
                yield _Sample("lag_records", {"topic": topic, "partition": partition}, lag)
    for what, seconds in standing.seconds_since.items():
        if seconds is not None:
            yield _Sample(f"seconds_since_{what}", {}, round(seconds, 3))
    for handler, values in standing.handlers.items():
        for what, value in values.items():
            name = f"handler_{what}" if what in _GAUGES_OF_A_HANDLER else f"handler_{what}_total"
            yield _Sample(name, {"handler": handler}, value)
    for event, count in standing.events.items():
        yield _Sample("events_total", {"event": event}, count)


def _line(sample: _Sample) -> str:
    named = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels.items()]
    labels = f"{{{','.join(named)}}}" if named else ""
    return f"asyncconsumer_{sample.name}{labels} {sample.value + 0}"
