"""The recorder of a consumer: counters and histograms that its parts write, without locks.

Parts write once per chunk, request, commit and handler call. A write per record would be too slow.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final

from asyncconsumer.aio.clock import wall_clock_ms
from asyncconsumer.metrics.families import FAMILIES
from asyncconsumer.metrics.measurements import Measurements, SampleRow
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

MAX_ERROR_TYPES: Final = 50
"""Error types with a series of their own. All others are counted as `other`."""
OTHER: Final = "other"

ObserveFunction = Callable[["Histogram", float], None]
"""A function that gets every value of every histogram, for exporters that aggregate themselves."""


class Histogram:
    """The sum of the recorded values, and the number of values in each bucket."""

    __slots__ = ("_bounds", "_listeners", "counts", "labels", "name", "total")

    def __init__(
        self, name: str, labels: tuple[str, ...], listeners: list[ObserveFunction]
    ) -> None:
        self.name: Final = name
        self.labels: Final = labels
        self._bounds = FAMILIES[name].bounds
        self._listeners = listeners  # shared by all histograms of a recorder
        self.counts = [0] * (len(self._bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Add a value, or several that are equal."""
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times
        for listener in self._listeners:
            for _ in range(times):
                listener(self, value)

    def row(self) -> SampleRow:
        """Return the values of the labels, and one value with the sum and the bucket counts."""
        return (*self.labels, (self.total, *self.counts))


class PartitionMeter:
    """The counters of one partition.

    Each chunk (the records of one fetch) refers to them, so that its stream can update them.
    """

    __slots__ = ("_latency", "_now_ms", "last_timestamp", "records", "size")

    def __init__(self, latency: Histogram, now_ms: Callable[[], int]) -> None:
        self.records = 0
        self.size = 0.0  # bytes
        self.last_timestamp = -1  # of the last chunk whose delivery began, or -1
        self._latency = latency
        self._now_ms = now_ms

    def begin(self, timestamp: int) -> None:
        """Record the timestamp and the latency of a chunk whose delivery begins.

        `timestamp` is that of the chunk's first record, in ms. If it is negative, record nothing.
        """
        if timestamp >= 0:
            self.last_timestamp = timestamp
            self._latency.observe(max(0, self._now_ms() - timestamp) / 1000)

    def add(self, records: int, size: float) -> None:
        """Count delivered records and their bytes."""
        self.records += records
        self.size += size


class Recorder:
    """The counters and histograms of one consumer.

    They keep their values when the consumer is closed and opened again.
    """

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.now_ms: Final = now_ms
        self.loop: asyncio.AbstractEventLoop | None = None  # of the last opening
        self.counts: Counter[tuple[str, ...]] = Counter()  # by metric and label values
        self.throttled_seconds = 0.0
        self.listeners: Final[list[ObserveFunction]] = []
        self._histograms: dict[tuple[str, ...], Histogram] = {}
        self._meters: dict[TopicPartition, PartitionMeter] = {}
        self._forgotten_records = 0
        self.fetch_duration: Final = self.histogram("fetch_duration_seconds")
        self.fetch_size: Final = self.histogram("fetch_bytes")
        self.commit_duration: Final = self.histogram("commit_duration_seconds")
        self.rebalance_duration: Final = self.histogram("rebalance_duration_seconds")
        self._latency = self.histogram("delivery_latency_seconds")

    def histogram(self, name: str, *labels: str) -> Histogram:
        """Return the histogram of a metric with these label values. The first call creates it."""
        key = (name, *labels)
        if (histogram := self._histograms.get(key)) is None:
            histogram = self._histograms[key] = Histogram(name, labels, self.listeners)
        return histogram

    def meter(self, tp: TopicPartition) -> PartitionMeter:
        """Return the counters of a partition. The first call creates them."""
        if (meter := self._meters.get(tp)) is None:
            meter = self._meters[tp] = PartitionMeter(self._latency, self.now_ms)
        return meter

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the counters of partitions that are not assigned any more."""
        for tp in partitions:
            if (meter := self._meters.pop(tp, None)) is not None:
                self._forgotten_records += meter.records

    @property
    def consumed_records(self) -> int:
        """The number of records consumed from all partitions, including those assigned earlier."""
        return self._forgotten_records + sum(meter.records for meter in self._meters.values())

    def count_error(self, name: str, error: BaseException, *labels: str) -> None:
        """Count an error in the metric `name`.

        The label values are `labels`, followed by the class name of the error.
        """
        key = (name, *labels, type(error).__name__)
        if key not in self.counts:
            known = sum(other[:-1] == key[:-1] for other in self.counts)
            if known >= MAX_ERROR_TYPES:
                key = (*key[:-1], OTHER)
        self.counts[key] += 1

    def count_throttled(self, seconds: float) -> None:
        """Add to the time for which brokers throttled this client."""
        self.throttled_seconds += seconds

    def measurements(self) -> Measurements:
        """Return the current values, except those of partitions."""
        rows: dict[str, list[SampleRow]] = {
            "fetch_throttle_seconds_total": [(self.throttled_seconds,)],
        }
        for (name, *_), histogram in self._histograms.items():
            rows.setdefault(name, []).append(histogram.row())
        for (name, *labels), count in self.counts.items():
            rows.setdefault(name, []).append((*labels, count))
        return rows

    def meters(self) -> Iterator[tuple[TopicPartition, PartitionMeter]]:
        """Yield the counters of all partitions."""
        yield from self._meters.items()
