"""The definitions of all metrics: name, type, meaning and labels."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

PREFIX: Final = "asyncconsumer_"
PARTITION: Final = ("topic", "partition")
_QUERY: Final = ("query", "topic")

SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
"""Upper bounds in seconds, those that the OpenTelemetry conventions for messaging recommend."""
LATENCY: Final = (0.001, *SECONDS, 30.0, 60.0, 300.0, 1800.0, 3600.0)
BYTES: Final = tuple(float(4**power) for power in range(4, 14))  # 256 B to 64 MiB

FamilyType = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    """The definition of a metric. `group` and `worker` are labels of every metric.

    With too many partitions, their series are merged into one. `merge` says whether it has their
    sum or their maximum.
    """

    kind: FamilyType
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    merge: Literal["sum", "max"] = "sum"


def _counter(text: str, *labels: str) -> Family:
    return Family("counter", text, labels)


def _gauge(text: str, *labels: str) -> Family:
    return Family("gauge", text, labels)


def _histogram(text: str, *labels: str, bounds: tuple[float, ...] = SECONDS) -> Family:
    return Family("histogram", text, labels, bounds)


FAMILIES: Final[Mapping[str, Family]] = {
    # health
    "live": _gauge("1 if the consumer works or can recover by itself, 0 if it needs a restart."),
    "ready": _gauge("1 if the consumer has its assignment and makes progress, otherwise 0."),
    "state": _gauge("1 for the current state, 0 for all others.", "state"),
    "heartbeat_age_seconds": _gauge("Seconds since the last successful heartbeat."),
    "fetch_age_seconds": _gauge("Seconds since the last fetch response of a broker."),
    "progress_age_seconds": _gauge("Seconds since the last record was consumed."),
    "stalled_partitions": _gauge("Partitions that should make progress and do not."),
    "assigned_partitions": _gauge("Partitions that are assigned to this consumer."),
    # lag
    "lag_records": _gauge("Records that are not consumed and processed yet.", *PARTITION),
    "lag_seconds": Family(
        "gauge",
        "Age of the oldest record that is not processed yet, 0 if there is none.",
        PARTITION,
        merge="max",
    ),
    # consumption
    "consumed_records_total": _counter("Records delivered, counted by offsets.", *PARTITION),
    "consumed_bytes_total": _counter("Bytes delivered, as compressed in the log.", *PARTITION),
    "delivery_latency_seconds": _histogram(
        "Time from the timestamp of a record to its delivery, for the first record of each chunk.",
        bounds=LATENCY,
    ),
    # fetching
    "fetch_duration_seconds": _histogram(
        "Time from a fetch request to its response, with the wait for records at the broker."
    ),
    "fetch_bytes": _histogram("Size of fetch responses.", bounds=BYTES),
    "fetch_errors_total": _counter("Fetches of a partition that failed, by error type.", "error"),
    "fetch_throttle_seconds_total": _counter("Seconds for which brokers throttled fetches."),
    "buffered_bytes": _gauge("Bytes in memory: buffered chunks and fetches in flight."),
    "buffer_limit_bytes": _gauge("The limit of the buffered bytes, `max_buffered_bytes`."),
    "connections_opened_total": _counter("Connections to brokers that were opened."),
    "connections_lost_total": _counter("Connections to brokers that broke, and are reopened."),
    "connections_failed_total": _counter("Attempts to connect to a broker that failed."),
    # commits and rebalances
    "commit_duration_seconds": _histogram("Time of a commit, successful or not."),
    "commit_failures_total": _counter("Commits that failed, by error type.", "error"),
    "rebalance_duration_seconds": _histogram(
        "Time from a new assignment until its partitions are fetched."
    ),
    # handlers
    "handler_duration_seconds": _histogram("Time of a handler call.", "handler"),
    "handler_errors_total": _counter(
        "Handler calls that failed, by error type.", "handler", "error"
    ),
    "handler_running": _gauge("Handler calls that are running now.", "handler"),
    "handler_in_flight": _gauge("Records queued for a handler or being processed.", "handler"),
    "handler_in_flight_bytes": _gauge("Bytes of the records in flight.", "handler"),
    "handler_finished_total": _counter("Handler calls that succeeded.", "handler"),
    "handler_failed_total": _counter("Handler calls that failed.", "handler"),
    "handler_retried_total": _counter("Failures after which a record was retried.", "handler"),
    "handler_parked_total": _counter("Records written to a retry topic.", "handler"),
    "handler_dead_letters_total": _counter("Records written to a dead letter topic.", "handler"),
    "handler_skipped_total": _counter("Records skipped after all retries failed.", "handler"),
    # feeders
    "feeder_records_total": _counter("Records written to the sink."),
    "feeder_bytes_total": _counter("Bytes written to the sink, as Arrow columns."),
    "feeder_batches_total": _counter("Batches written to the sink."),
    "feeder_write_duration_seconds": _histogram("Time to write a batch to the sink."),
    "feeder_in_flight": _gauge("Batches that are being written."),
    "feeder_in_flight_bytes": _gauge("Bytes of the batches that are being written."),
    "feeder_collecting_bytes": _gauge("Bytes of the batches that are not complete yet."),
    "feeder_lag_records": _gauge("Records that are in the log and not in the sink."),
    "feeder_retries_total": _counter("Calls of the sink that failed and were repeated."),
    "feeder_refused_total": _counter("Parts of batches that the sink refused."),
    "feeder_abandoned_total": _counter("Parts of batches dropped after a rebalance or failure."),
    "feeder_failed_commits_total": _counter("Commits to the group that failed."),
    # streaming queries of Spark
    "query_lag_records": _gauge("Records that a streaming query has not read yet.", *_QUERY),
    "query_lag_seconds": _gauge("Age of the oldest record that it has not read yet.", *_QUERY),
    # events
    "events_total": _counter("Events so far, by type.", "event"),
}
"""All metrics, by name without the prefix."""
