"""The status of a consumer or app as plain values, for pages, metrics and other processes."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from asyncconsumer.metrics.measurements import Measurements
from asyncconsumer.types import TopicPartition

Lag = Mapping[str, Mapping[str, int | None]]
"""The lag in records by topic and partition; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a consumer or Kafka app. `reason` says why it is not live or not ready."""

    live: bool  # false if only a restart can help
    ready: bool
    started: bool = False  # true after the first assignment, also while it changes
    state: str
    reason: str | None = None
    group: str | None = None
    lag: Lag = field(default_factory=dict)
    seconds_since: Mapping[str, float | None] = field(default_factory=dict)
    handlers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    measurements: Measurements = field(default_factory=dict)  # for metrics only

    @property
    def total_lag(self) -> int | None:
        """The sum of the lag of all partitions, or None if the lag of any partition is unknown."""
        lags = [lag for partitions in self.lag.values() for lag in partitions.values()]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) else None

    def as_dict(self) -> dict[str, Any]:
        """Return the status without its measurements, as a dict that JSON can represent."""
        values = dataclasses.asdict(dataclasses.replace(self, measurements={}))
        del values["measurements"]
        return values

    def as_message(self) -> dict[str, Any]:
        """Return the status and its measurements as a dict, for `from_dict` in another process."""
        return {**self.as_dict(), "measurements": self.measurements}

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse the status that another process has sent as JSON."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Create a status from a dict.

        Unknown fields are ignored, because a newer version may have sent them.
        """
        names = {known.name for known in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in names})


def lag_by_name(lag: Mapping[TopicPartition, int | None]) -> Lag:
    """Return the lag by topic name and partition number as text, for JSON."""
    by_name: dict[str, dict[str, int | None]] = {}
    for tp in sorted(lag):
        by_name.setdefault(tp.topic, {})[str(tp.partition)] = lag[tp]
    return by_name


StatusSource = Callable[[], Mapping[str, Status]]
"""A function that returns the status of each worker by name. Without workers the name is ``""``."""


def combine(parts: Mapping[str, Status]) -> Status:
    """Return one status for all workers. It is ready, or started, if all workers are.

    Its `reason` is that of the first worker that is not live or not ready.
    """
    statuses = parts.values()
    reasons = (
        f"{name}: {status.reason}"
        for name, status in parts.items()
        if not (status.live and status.ready)
    )
    return Status(
        live=all(status.live for status in statuses),
        ready=bool(parts) and all(status.ready for status in statuses),
        started=bool(parts) and all(status.started for status in statuses),
        state=", ".join(dict.fromkeys(status.state for status in statuses)) or "no workers",
        reason=next(reasons, None),
        group=next((status.group for status in statuses if status.group is not None), None),
        lag=_merge(status.lag for status in statuses),
    )


def _merge(lags: Iterable[Lag]) -> Lag:
    merged: dict[str, dict[str, int | None]] = {}
    for lag in lags:
        for topic, partitions in lag.items():
            merged.setdefault(topic, {}).update(partitions)
    return merged
