"""A listener that measures how far streaming queries are behind Kafka.

listener = LagListener()
spark.streams.addListener(listener)
listener.metrics.register()  # or `export()` for OpenTelemetry
"""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from asyncconsumer.metrics.measurements import Measurements, Sample, samples
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.spark.source.offsets import progress_offsets
from asyncconsumer.web.measured import Metrics

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log: Final = logging.getLogger(__name__)
_MAX_ENDS: Final = 1000  # log ends that are kept for a partition


class TopicLag(NamedTuple):
    """The lag of a query in one topic."""

    records: int
    """Records that the query has not read yet, in all partitions, counted by offsets."""

    seconds: float
    """The seconds for which the first of these records has been in the topic, or 0 without records.

    The time is estimated from the log ends that Spark has reported since the listener was added.
    """


class LagListener(StreamingQueryListener):
    """A listener of the streaming queries of a Spark session, which measures their lag.

    The offsets are those of the progress that Spark reports after each micro-batch, so no request
    is sent to Kafka. The listener works for this source and for Spark's own. Each lag is logged at
    level INFO.
    """

    def __init__(self) -> None:
        self._queries: dict[str, _Query] = {}  # by run id

    @cached_property
    def metrics(self) -> Metrics:
        """The lags, for a registry of Prometheus or a meter of OpenTelemetry."""
        return _LagMetrics(self)

    def lag(self) -> dict[str, dict[str, TopicLag]]:
        """Return the lag of each running query, by topic.

        The keys are the names of queries. A query without a name has its id.
        """
        return {query.name: query.lags for query in list(self._queries.values())}

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802 - Spark's name
        """Do nothing, because a query has no lag before its first progress."""

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802 - Spark's name
        """Update the lag of a query after a micro-batch."""
        progress = json.loads(event.progress.json)
        run = progress["runId"]
        if run not in self._queries:
            self._queries[run] = _Query(progress.get("name") or progress["id"])
        query = self._queries[run]
        query.update(datetime.fromisoformat(progress["timestamp"]), progress["sources"])
        for topic, (records, seconds) in query.lags.items():
            _log.info(
                "query %s is %d records and %.1f s behind the end of topic %s",
                *(query.name, records, seconds, topic),
            )

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802 - Spark's name
        """Remove the lag of a query that has ended."""
        self._queries.pop(str(event.runId), None)


class _Query:
    def __init__(self, name: str) -> None:
        self.name = name
        self.lags: dict[str, TopicLag] = {}  # replaced by each update, as other threads read it
        # by source, topic and partition
        self._ends: dict[tuple[int, str, int], _LogEndHistory] = {}

    def update(self, now: datetime, sources: Sequence[Mapping[str, Any]]) -> None:
        lags: dict[str, TopicLag] = {}
        for number, source in enumerate(sources):
            position = progress_offsets(source.get("endOffset"))
            for tp, end in progress_offsets(source.get("latestOffset")).items():
                ends = self._ends.setdefault((number, *tp), _LogEndHistory())
                offset = position.get(tp, 0)
                seconds = ends.update(now.timestamp(), end, offset)
                records, longest = lags.get(tp.topic, TopicLag(0, 0.0))
                lags[tp.topic] = TopicLag(records + max(0, end - offset), max(longest, seconds))
        self.lags = lags


class _LogEndHistory:
    """The log ends of a partition, with the times at which they were reported."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int]] = []

    def update(self, now: float, end: int, position: int) -> float:
        """Add the log end `end`, which was reported at the time `now` (in seconds).

        Return the number of seconds since the record at the offset `position` was appended,
        interpolated between reports. Return 0 if the log ends at `position`.
        """
        ends = self._ends
        if ends and end < ends[-1][1]:
            ends.clear()  # the topic was re-created
        ends.append((now, end))
        while len(ends) > 1 and ends[1][1] <= position:
            del ends[0]
        if len(ends) > _MAX_ENDS:
            del ends[1:-1:2]
        if end <= position:
            return 0.0
        (time, before), (later, after) = ends[0], ends[min(1, len(ends) - 1)]
        if before < position:  # the record was appended between the two reports
            time += (later - time) * (position - before) / (after - before)
        return now - time


class _LagMetrics(Metrics):
    def __init__(self, listener: LagListener) -> None:
        super().__init__(Recorder(), dict)
        self._listener = listener

    def _read(self) -> list[Sample]:
        lags = [
            (query, topic, lag)
            for query, topics in self._listener.lag().items()
            for topic, lag in topics.items()
        ]
        measurements: Measurements = {
            "query_lag_records": [(query, topic, lag.records) for query, topic, lag in lags],
            "query_lag_seconds": [(query, topic, lag.seconds) for query, topic, lag in lags],
        }
        return list(samples(measurements, {}))
