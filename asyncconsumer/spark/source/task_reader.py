"""The reader of a Spark task, which reads ranges of offsets as Arrow batches."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from asyncconsumer.errors import (
    ConsumerError,
    CorruptRecords,
    DataLoss,
    OffsetUnavailable,
    TopicRecreated,
    UnknownTopicOrPartition,
)
from asyncconsumer.spark.source.client import Client
from asyncconsumer.spark.source.resolve import drop_missing
from asyncconsumer.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from asyncconsumer.fetch.direct.partition_reader import PartitionReader
    from asyncconsumer.records import decoding

_log: Final = logging.getLogger(__name__)
_MAX_PREFETCH_BYTES: Final = 8 * 2**20
_LOSSES: Final = (OffsetUnavailable, TopicRecreated, UnknownTopicOrPartition)


class ArrowBatches(Protocol):
    """A converter of fetched records to Arrow batches."""

    def next_batch(self, records: "decoding.Records") -> "pa.RecordBatch | None":
        """Return the next rows of `records` as a batch, or None after the last row."""


class _Prefetcher:
    """The readers of the next offset ranges of a task, each with its first fetch in flight."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._readers: dict[OffsetRange, PartitionReader] = {}

    async def prefetch(self, ranges: Iterable[OffsetRange]) -> None:
        """Send the first fetch of each range, up to `_MAX_PREFETCH_BYTES` in total.

        At least one fetch is sent, even if its range is larger.
        """
        room = _MAX_PREFETCH_BYTES
        for offsets in ranges:
            if offsets.start >= offsets.end:
                continue
            room -= self._client.fetch_bytes(offsets)
            if room < 0 and self._readers:
                return
            if offsets not in self._readers:
                reader = self._readers[offsets] = self._client.reader(offsets)
                await reader.fetch_ahead()

    def take(self, offsets: OffsetRange) -> "PartitionReader":
        """Remove and return the reader of the range `offsets`.

        Create one if the range was not prefetched.
        """
        return self._readers.pop(offsets, None) or self._client.reader(offsets)


async def read(
    client: Client,
    ranges: Sequence[OffsetRange],
    batches: ArrowBatches,
    *,
    fail_on_data_loss: bool,
    topic_ids: Mapping[str, UUID] = MappingProxyType({}),
) -> AsyncGenerator["pa.RecordBatch", None]:
    """Yield the records of each range as Arrow batches.

    A data loss is raised if `fail_on_data_loss`, and logged otherwise.

    `topic_ids` are the ids that the topics had when the ranges were planned.
    """
    recreated = await client.recreated(topic_ids) if topic_ids else set()
    for offsets in ranges:
        if offsets.topic in recreated:
            error = TopicRecreated(offsets.topic, offsets.partition, offsets.start)
            _report(error, offsets, fail_on_data_loss=fail_on_data_loss)
    prefetcher = _Prefetcher(client)
    await prefetcher.prefetch(ranges)  # fetches run while the log ends are looked up
    pending = deque(await _cut_at_end(client, ranges, fail_on_data_loss=fail_on_data_loss))
    while pending:
        current: OffsetRange | None = pending.popleft()
        while current is not None:
            reader = prefetcher.take(current)
            await prefetcher.prefetch(pending)
            try:
                while (records := await reader.next()) is not None:
                    for batch in _decoded(records, reader, batches):
                        yield batch
                break
            except _LOSSES as error:
                _report(error, current, fail_on_data_loss=fail_on_data_loss)
                rest = current._replace(start=max(current.start, reader.position))
                (current,) = await _readable(client, [rest]) or (None,)


def _decoded(
    records: "decoding.Records", reader: "PartitionReader", batches: ArrowBatches
) -> Iterator["pa.RecordBatch"]:
    """Yield fetched records as Arrow batches.

    If records are corrupt, return early and let `reader` fetch them again. Raise CorruptRecords
    if it cannot, or has tried several times.
    """
    try:
        while (batch := batches.next_batch(records)) is not None:
            if batch.num_rows:
                yield batch
    except CorruptRecords as error:
        if not reader.recover(error):
            raise
    records.close()


async def _cut_at_end(
    client: Client, ranges: Sequence[OffsetRange], *, fail_on_data_loss: bool
) -> Sequence[OffsetRange]:
    """Return the ranges, cut at the end of their partition's log.

    Reading past the end would never finish. A cut means data loss, which is raised with
    `fail_on_data_loss` and logged otherwise.
    """
    ends = await drop_missing(client.latest, [_partition(offsets) for offsets in ranges])
    too_long = [offsets for offsets in ranges if ends.get(_partition(offsets), -1) < offsets.end]
    if not too_long:
        return ranges
    starts = await drop_missing(client.earliest, [_partition(offsets) for offsets in too_long])
    for offsets in too_long:
        tp = _partition(offsets)
        error: ConsumerError = UnknownTopicOrPartition(str(tp))
        if tp in starts and tp in ends:
            error = OffsetUnavailable(*tp, offsets.end, starts[tp], ends[tp])
        _report(error, offsets, fail_on_data_loss=fail_on_data_loss)
    return await _readable(client, ranges)


async def _readable(client: Client, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of the ranges that are still in the partitions' logs."""
    starts = await drop_missing(client.earliest, [_partition(offsets) for offsets in ranges])
    ends = await drop_missing(client.latest, list(starts))
    readable = [
        offsets._replace(start=max(offsets.start, starts[tp]), end=min(offsets.end, ends[tp]))
        for offsets in ranges
        if (tp := _partition(offsets)) in ends
    ]
    return [offsets for offsets in readable if offsets.start < offsets.end]


def _partition(offsets: OffsetRange) -> TopicPartition:
    return TopicPartition(offsets.topic, offsets.partition)


def _report(error: ConsumerError, offsets: OffsetRange, *, fail_on_data_loss: bool) -> None:
    """Raise `DataLoss` for a range that cannot be read, or log it without `fail_on_data_loss`."""
    tp = _partition(offsets)
    details = f"offsets {offsets.start} to {offsets.end} of {tp} cannot be read: {error}"
    loss = DataLoss("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", details)
    if fail_on_data_loss:
        raise loss from error
    _log.warning("%s", loss)
