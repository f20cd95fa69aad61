"""Filters that Spark pushes down: on topic, partition and offset fully, on time as a lower bound.

With `timestamp >= t`, reading begins at the first such record that Kafka finds. Timestamps need not
grow, so later records can be older. Spark therefore applies timestamp filters again.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from asyncconsumer.fetch.offset_lookup import milliseconds
from asyncconsumer.spark.source.worker_process import runs
from asyncconsumer.types import OffsetRange

_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_COLUMNS: Final = ("topic", "partition", "offset")
_TESTS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    In: lambda found, wanted: found in wanted,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def is_on() -> bool:
    """Return whether this process plans a query with `spark.sql.python.filterPushdown.enabled`.

    Without that setting Spark rejects a reader with filters. The only sign of the setting is the
    program that Spark runs to plan the query.
    """
    return runs(_WORKER)


@dataclass
class PushedFilters:
    """The filters that limit the ranges selected by the options."""

    tests: list[tuple[str, type[Filter], Any]] = field(default_factory=list)
    since_ms: int | None = None
    first: int = 0
    last: int = 2**63 - 1

    def take(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Store the supported filters, and yield those that Spark has to apply."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Any) -> bool:  # noqa: ANN401 - pyspark's filters have no common fields
        path: tuple[str, ...] = getattr(one, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        if isinstance(one, IsNotNull):
            return name in _COLUMNS
        if type(one) not in _TESTS or name not in (*_COLUMNS, "timestamp"):
            return False
        if name == "timestamp":
            self._begin(one)
            return False
        if name == "offset":
            return self._bound(type(one), one.value)
        self.tests.append((name, type(one), one.value))
        return True

    def _begin(self, one: Any) -> None:  # noqa: ANN401 - as above
        after = isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual)
        if after and isinstance(one.value, datetime) and one.value.tzinfo is not None:
            moment = milliseconds(one.value)
            if moment > 0:  # records without a timestamp have -1, which Kafka does not search
                self.since_ms = max(moment, self.since_ms or 0)

    def _bound(self, kind: type[Filter], value: Any) -> bool:  # noqa: ANN401 - of any column
        if not isinstance(value, int):
            return False
        if kind in (EqualTo, GreaterThan, GreaterThanOrEqual):
            self.first = max(self.first, value + (kind is GreaterThan))
        if kind in (EqualTo, LessThan, LessThanOrEqual):
            self.last = min(self.last, value - (kind is LessThan))
        return True

    def has(self, topic: str, partition: int) -> bool:
        """Return whether a partition passes the filters."""
        found = {"topic": topic, "partition": partition}
        return all(_TESTS[kind](found[name], value) for name, kind, value in self.tests)

    def of(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges limited by the filters."""
        cut = [
            one._replace(start=max(one.start, self.first), end=min(one.end, self.last + 1))
            for one in ranges
            if self.has(one.topic, one.partition)
        ]
        return [one for one in cut if one.start < one.end]
