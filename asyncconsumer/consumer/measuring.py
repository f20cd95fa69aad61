"""The metrics of an open consumer, from its recorder, its fetch manager and its partitions."""

from collections.abc import Iterable, Iterator, Mapping

from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.metrics.measurements import Measurements, SampleRow
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.types import TopicPartition


def measurements_of(
    manager: FetchManager,
    rebalancer: Rebalancer | None,
    lag: Mapping[TopicPartition, int | None],
) -> Measurements:
    """Return the current measurements. Only assigned partitions have series."""
    recorder, connections = manager.recorder, manager.connections
    reading = {} if rebalancer is None else rebalancer.reading
    for stream in {routed.stream for routed in reading.values()}:
        stream.count_delivered()
    meters = [(tp, meter) for tp, meter in recorder.meters() if tp in reading]
    ages = () if rebalancer is None else _ages(recorder, rebalancer, lag)
    return {
        **recorder.measurements(),
        "consumed_records_total": [(*tp, meter.records) for tp, meter in meters],
        "consumed_bytes_total": [(*tp, round(meter.size)) for tp, meter in meters],
        "lag_seconds": list(_rows(ages)),
        "assigned_partitions": [(len(reading),)],
        "stalled_partitions": [(len(manager.stalled()),)],
        "buffered_bytes": [(manager.budget.used,)],
        "buffer_limit_bytes": [(manager.budget.limit,)],
        "connections_opened_total": [(connections.opened,)],
        "connections_lost_total": [(connections.lost,)],
        "connections_failed_total": [(connections.failed,)],
    }


def _ages(
    recorder: Recorder, rebalancer: Rebalancer, lag: Mapping[TopicPartition, int | None]
) -> Iterator[tuple[TopicPartition, float]]:
    """Yield each partition with the age in seconds of its oldest unprocessed record, if known.

    If that record was not fetched yet, it is younger than the records delivered last. Their age is
    used instead.
    """
    now, meters = recorder.now_ms(), dict(recorder.meters())
    for tp, (stream, *_) in rebalancer.reading.items():
        behind, timestamp = lag.get(tp), stream.oldest_timestamp(tp)
        if timestamp is None and behind == 0:
            yield tp, 0.0
            continue
        if timestamp is None and behind is not None and tp in meters:
            timestamp = meters[tp].last_timestamp
        if timestamp is not None and timestamp >= 0:
            yield tp, max(0, now - timestamp) / 1000


def _rows(values: Iterable[tuple[TopicPartition, float]]) -> Iterator[SampleRow]:
    return ((*tp, value) for tp, value in values)
