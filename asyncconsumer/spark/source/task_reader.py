"""The reading of a task: ranges of offsets as Arrow batches."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from asyncconsumer.errors import (
    ConsumerError,
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
_MOST_AHEAD: Final = 8 * 2**20  # bytes that are fetched ahead
_GONE: Final = (OffsetUnavailable, TopicRecreated, UnknownTopicOrPartition)


class ArrowBatches(Protocol):
    """A converter from records to Arrow batches."""

    def of(self, records: "decoding.Records") -> "pa.RecordBatch | None":
        """Return the next rows; None when there are no more."""


class _Ahead:
    """The readers of later ranges, whose first fetches are already in flight."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._readers: dict[OffsetRange, PartitionReader] = {}

    async def ask(self, ranges: Iterable[OffsetRange]) -> None:
        """Send fetches for the next ranges, up to `_MOST_AHEAD` bytes."""
        room = _MOST_AHEAD
        for one in (wanted for wanted in ranges if wanted.start < wanted.end):
            room -= self._client.fetch_bytes(one)
            if room < 0 and self._readers:
                return
            if one not in self._readers:
                reader = self._readers[one] = self._client.reader(one)
                await reader.ask_ahead()

    def take(self, wanted: OffsetRange) -> "PartitionReader":
        """Return the reader of the range that is read now."""
        return self._readers.pop(wanted, None) or self._client.reader(wanted)


async def read(
    client: Client,
    ranges: Sequence[OffsetRange],
    batches: ArrowBatches,
    *,
    fail_on_data_loss: bool,
    topic_ids: Mapping[str, UUID] = MappingProxyType({}),
) -> AsyncGenerator["pa.RecordBatch", None]:
    """Yield the rows of each range. On data loss raise, or log it and read the rest.

    `topic_ids` are the known ids of the topics for which the ranges were planned.
    """
    others = await client.recreated(topic_ids) if topic_ids else set()
    for one in (wanted for wanted in ranges if wanted.topic in others):
        error = TopicRecreated(one.topic, one.partition, one.start)
        _tell(error, one, fail_on_data_loss=fail_on_data_loss)
    ahead = _Ahead(client)
    await ahead.ask(ranges)  # fetches run while the log ends are looked up
    waiting = deque(await _there(client, ranges, fail_on_data_loss=fail_on_data_loss))
    while waiting:
        left: OffsetRange | None = waiting.popleft()
        while left is not None:
            reader = ahead.take(left)
            await ahead.ask(waiting)
            try:
                while (records := await reader.next()) is not None:
                    while (batch := batches.of(records)) is not None:
                        if batch.num_rows:
                            yield batch
                    records.close()
                break
            except _GONE as error:
                _tell(error, left, fail_on_data_loss=fail_on_data_loss)
                rest = left._replace(start=max(left.start, reader.position))
                (left,) = await _what_is_left(client, [rest]) or (None,)


async def _there(
    client: Client, ranges: Sequence[OffsetRange], *, fail_on_data_loss: bool
) -> Sequence[OffsetRange]:
    """Cut ranges at the end of the log, because reading past it would never finish."""
    ends = await drop_missing(client.latest, [_place(one) for one in ranges])
    short = [one for one in ranges if ends.get(_place(one), -1) < one.end]
    if not short:
        return ranges
    begins = await drop_missing(client.earliest, [_place(one) for one in short])
    for one in short:
        at = _place(one)
        error: ConsumerError = UnknownTopicOrPartition(str(at))
        if at in begins and at in ends:
            error = OffsetUnavailable(*at, one.end, begins[at], ends[at])
        _tell(error, one, fail_on_data_loss=fail_on_data_loss)
    return await _what_is_left(client, ranges)


async def _what_is_left(client: Client, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    begins = await drop_missing(client.earliest, [_place(one) for one in ranges])
    ends = await drop_missing(client.latest, list(begins))
    found = [
        one._replace(start=max(one.start, begins[at]), end=min(one.end, ends[at]))
        for one in ranges
        if (at := _place(one)) in ends
    ]
    return [one for one in found if one.start < one.end]


def _place(wanted: OffsetRange) -> TopicPartition:
    return TopicPartition(wanted.topic, wanted.partition)


def _tell(error: ConsumerError, wanted: OffsetRange, *, fail_on_data_loss: bool) -> None:
    details = f"offsets {wanted.start} to {wanted.end} of {_place(wanted)} cannot be read: {error}"
    lost = DataLoss("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", details)
    if fail_on_data_loss:
        raise lost from error
    _log.warning("%s", lost)
