"""Measurements as plain values, which are sent between processes and read by exporters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from asyncconsumer.metrics.families import FAMILIES, PARTITION

MAX_PARTITIONS: Final = 1000
"""Partitions with series of their own. If there are more, those of a topic are shown as one."""
ALL: Final = "all"
"""The label value of series that were merged."""

SampleValue: TypeAlias = float | Sequence[float]
"""A number, or for a histogram the sum of all values and the count of each bucket."""
SampleRow: TypeAlias = Sequence[str | float | Sequence[float]]
"""The label values of a series, and its value."""
Measurements: TypeAlias = Mapping[str, Sequence[SampleRow]]
"""The rows of each metric, by name. JSON can represent them."""


class Sample(NamedTuple):
    """The current value of one series."""

    name: str
    labels: Mapping[str, str]
    value: SampleValue


def samples(measurements: Measurements, labels: Mapping[str, str]) -> Iterator[Sample]:
    """Yield the samples of all series. Each gets the additional `labels`.

    Metrics that this version does not know are skipped, because a newer version may have sent them.
    """
    for name, rows in measurements.items():
        if (family := FAMILIES.get(name)) is not None:
            for *values, value in _bounded(name, rows):
                own = dict(zip(family.labels, map(str, values), strict=True))
                assert not isinstance(value, str)
                yield Sample(name, {**labels, **own}, value)


def _bounded(name: str, rows: Sequence[SampleRow]) -> Iterable[SampleRow]:
    """Return the rows of a metric. If there are too many partitions, merge the rows of each topic.

    If there are also too many topics, merge all rows into one.
    """
    family = FAMILIES[name]
    if family.labels != PARTITION or len(rows) <= MAX_PARTITIONS:
        return rows
    several_topics = len({row[0] for row in rows}) <= MAX_PARTITIONS
    merged: dict[str, list[float]] = {}
    for topic, _, value in rows:
        assert isinstance(value, int | float)
        merged.setdefault(str(topic) if several_topics else ALL, []).append(value)
    merge = max if family.merge == "max" else sum
    return [(topic, ALL, merge(values)) for topic, values in merged.items()]
