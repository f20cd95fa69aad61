"""How a consumer or an app stands, as plain values: for pages, for metrics, for another process."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from asyncconsumer.types import TopicPartition

Lag = Mapping[str, Mapping[str, int | None]]
"""Records that are still to be read, by topic and partition; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What those outside need to know. `reason` says why it is not as it should be."""

    live: bool  # false: it does not get well by itself
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
        """Of all partitions, unless one is not known."""
        each = [one for partitions in self.lag.values() for one in partitions.values()]
        known = [one for one in each if one is not None]
        return sum(known) if len(known) == len(each) else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What another process has told of itself."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """The same, read already. One of a newer version may tell more than is known here."""
        names = {known.name for known in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in told.items() if name in names})


def lag_by_name(lag: Mapping[TopicPartition, int | None]) -> Lag:
    """The same, with names that JSON can have."""
    named: dict[str, dict[str, int | None]] = {}
    for one in sorted(lag):
        named.setdefault(one.topic, {})[str(one.partition)] = lag[one]
    return named


def together(parts: Mapping[str, Status]) -> Status:
    """Many as one: all must be well, and the first that is not says why."""
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
