"""What a task does: ranges of offsets as Arrow batches."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from asyncconsumer.errors import (
    ConsumerError,
    DataLost,
    OffsetNotThere,
    TopicRecreated,
    UnknownTopicOrPartition,
)
from asyncconsumer.model import TopicPartition
from asyncconsumer.ranges import OffsetRange
from asyncconsumer.spark.client import Client
from asyncconsumer.spark.resolve import those_there

if TYPE_CHECKING:
    import pyarrow as pa

    from asyncconsumer.wire import accel

_log: Final = logging.getLogger(__name__)
_GONE: Final = (OffsetNotThere, TopicRecreated, UnknownTopicOrPartition)


class Batches(Protocol):
    """Makes Arrow batches of records."""

    def of(self, records: "accel.Records") -> "pa.RecordBatch | None":
        """The next rows; None when there are no more."""


async def read(
    client: Client, ranges: Sequence[OffsetRange], batches: Batches, *, fail_on_data_loss: bool
) -> AsyncIterator["pa.RecordBatch"]:
    """The rows of each range. Where some of it is gone: raise, or take what is left and say so."""
    for wanted in await _there(client, ranges, fail_on_data_loss=fail_on_data_loss):
        left: OffsetRange | None = wanted
        while left is not None:
            reader = client.reader(left)
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
    """Ranges that end where the log has an end: one that ends behind it would never end."""
    ends = await those_there(client.latest, [_place(one) for one in ranges])
    short = [one for one in ranges if ends.get(_place(one), -1) < one.end]
    if not short:
        return ranges
    begins = await those_there(client.earliest, [_place(one) for one in short])
    for one in short:
        at = _place(one)
        error: ConsumerError = UnknownTopicOrPartition(str(at))
        if at in begins and at in ends:
            error = OffsetNotThere(*at, one.end, begins[at], ends[at])
        _tell(error, one, fail_on_data_loss=fail_on_data_loss)
    return await _what_is_left(client, ranges)


async def _what_is_left(client: Client, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    begins = await those_there(client.earliest, [_place(one) for one in ranges])
    ends = await those_there(client.latest, list(begins))
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
    lost = DataLost("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", details)
    if fail_on_data_loss:
        raise lost from error
    _log.warning("%s", lost)
