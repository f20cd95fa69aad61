"""The status of a consumer or app as plain values, for pages, metrics and other processes."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from asyncconsumer.types import TopicPartition

Lag = Mapping[str, Mapping[str, int | None]]
"""The number of records still to be read, by topic and partition; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a consumer or app. `reason` says why it is not live or not ready."""

    live: bool  # false if only a restart can help
    ready: bool
    state: str
    reason: str | None = None
    group: str | None = None
    lag: Lag = field(default_factory=dict)
    seconds_since: Mapping[str, float | None] = field(default_factory=dict)
    handlers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_lag(self) -> int | None:
        """The lag of all partitions; None if that of any is unknown."""
        each = [one for partitions in self.lag.values() for one in partitions.values()]
        known = [one for one in each if one is not None]
        return sum(known) if len(known) == len(each) else None

    def as_dict(self) -> dict[str, Any]:
        """Return the status as a dict that JSON can represent."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse the status of another process."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """Create a status from a dict. Ignore unknown fields, which a newer version may send."""
        names = {known.name for known in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in told.items() if name in names})


def lag_by_name(lag: Mapping[TopicPartition, int | None]) -> Lag:
    """Return the lag by topic name and partition number as text, for JSON."""
    named: dict[str, dict[str, int | None]] = {}
    for one in sorted(lag):
        named.setdefault(one.topic, {})[str(one.partition)] = lag[one]
    return named


def together(parts: Mapping[str, Status]) -> Status:
    """Combine many statuses. All must be live and ready; the first that is not gives the reason."""
    return Status(
        live=all(one.live for one in parts.values()),
        ready=bool(parts) and all(one.ready for one in parts.values()),
        state=_common(one.state for one in parts.values()),
        reason=next((f"{name}: {one.reason}" for name, one in parts.items() if _unwell(one)), None),
        group=next((one.group for one in parts.values() if one.group is not None), None),
        lag=_united(one.lag for one in parts.values()),
    )


def _unwell(one: Status) -> bool:
    return not (one.live and one.ready)


def _common(states: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(states)) or "nobody"


def _united(lags: Iterable[Lag]) -> Lag:
    united: dict[str, dict[str, int | None]] = {}
    for lag in lags:
        for topic, partitions in lag.items():
            united.setdefault(topic, {}).update(partitions)
    return united
