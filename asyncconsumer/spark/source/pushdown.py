"""Filters on topic, partition, offset and timestamp that Spark pushes down to the reader.

With `timestamp >= t`, reading begins at the first such record that Kafka finds. Timestamps need not
grow, so later records can be older than `t`. Spark therefore applies timestamp filters again.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from asyncconsumer.fetch.list_offsets import milliseconds
from asyncconsumer.spark.source.spark_api import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from asyncconsumer.spark.source.worker_process import is_running
from asyncconsumer.types import OffsetRange, TopicPartition

_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_COLUMNS: Final = ("topic", "partition", "offset")
_TESTS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    In: lambda value, values: value in values,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def is_on() -> bool:
    """Return whether this process plans a Spark query with filter pushdown enabled.

    The setting is `spark.sql.python.filterPushdown.enabled`. Without it Spark rejects a reader that
    accepts filters. This process cannot read the setting, so check whether it runs a module that
    Spark runs only with filter pushdown.
    """
    return is_running(_WORKER)


@dataclass
class PushedFilters:
    """The pushed filters of a query, which limit the offset ranges that its options select."""

    tests: list[tuple[str, type[Filter], Any]] = field(default_factory=list)
    since_ms: int | None = None
    first: int = 0
    last: int = 2**63 - 1

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Store the supported filters, and yield those that Spark must apply itself."""
        for pushed in filters:
            if not self._push(pushed):
                yield pushed

    def _push(self, pushed: Any) -> bool:  # noqa: ANN401 - pyspark's filters have no common fields
        """Store the filter `pushed` if it is supported.

        Return True if the reader applies it completely, so Spark need not apply it again.
        """
        path: tuple[str, ...] = getattr(pushed, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        if isinstance(pushed, IsNotNull):
            return name in _COLUMNS
        if type(pushed) not in _TESTS or name not in (*_COLUMNS, "timestamp"):
            return False
        if name == "timestamp":
            self._limit_time(pushed)
            return False
        if name == "offset":
            return self._limit_offset(type(pushed), pushed.value)
        self.tests.append((name, type(pushed), pushed.value))
        return True

    def _limit_time(self, pushed: Any) -> None:  # noqa: ANN401 - a filter with a value
        is_lower_bound = isinstance(pushed, EqualTo | GreaterThan | GreaterThanOrEqual)
        if is_lower_bound and isinstance(pushed.value, datetime) and pushed.value.tzinfo:
            moment = milliseconds(pushed.value)
            if moment > 0:  # records without a timestamp have -1, which Kafka does not search
                self.since_ms = max(moment, self.since_ms or 0)

    def _limit_offset(self, kind: type[Filter], value: Any) -> bool:  # noqa: ANN401 - of any type
        if not isinstance(value, int):
            return False
        if kind in (EqualTo, GreaterThan, GreaterThanOrEqual):
            self.first = max(self.first, value + (kind is GreaterThan))
        if kind in (EqualTo, LessThan, LessThanOrEqual):
            self.last = min(self.last, value - (kind is LessThan))
        return True

    def matches(self, topic: str, partition: int) -> bool:
        """Return whether a partition passes the filters."""
        values = {"topic": topic, "partition": partition}
        return all(_TESTS[kind](values[name], value) for name, kind, value in self.tests)

    def windows(self, partitions: Iterable[TopicPartition]) -> list[OffsetRange]:
        """Return the offsets that may match the filters, in each partition that passes them.

        A window without a filter on offsets has no limits: it goes from 0 to the largest offset.
        """
        return [
            OffsetRange(*tp, self.first, self.last + 1)
            for tp in sorted(partitions)
            if self.first <= self.last and self.matches(*tp)
        ]
