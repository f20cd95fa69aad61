"""A stream of one partition, read record by record, in chunks, or as Arrow batches."""

import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from asyncconsumer.errors import ConsumerError, CorruptRecords
from asyncconsumer.fetch.direct.partition_reader import PartitionReader
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import COLUMNS, Timestamps, to_arrow
from asyncconsumer.records.pauses import open_next

if TYPE_CHECKING:
    import pyarrow as pa


class _RecordSource:
    """The source of a stream's records: a reader that is opened on demand.

    The reader is opened for the first chunk, and closed after the last one.
    """

    def __init__(
        self, open_reader: Callable[[], Awaitable[PartitionReader]], close: Callable[[], None]
    ) -> None:
        self.reader: PartitionReader | None = None
        self._open_reader = open_reader
        self._close = close
        self._closed = False
        self._unseen: decoding.Records | None = None  # the chunk to deliver next
        self._seen: decoding.Records | None = None  # the last chunk delivered

    def close(self) -> None:
        self._closed = True
        if self.reader is not None:
            self.reader.close()
        self._close()

    def recover(self, error: Exception) -> bool:
        """Fetch corrupt records again, up to 3 times. Return whether they will be fetched again."""
        return not self._closed and self.reader is not None and self.reader.recover(error)

    async def next(self) -> decoding.Records | None:
        records = None
        try:
            if self.reader is None and not self._closed:
                self.reader = await self._open_reader()
            if self.reader is not None and not self._closed:
                records = await self.reader.next()
        except ConsumerError:
            if not self._closed:
                raise
        if records is None or self._closed:
            self.close()  # also a reader that was opened during `close`
            return None
        return records

    async def next_chunk(self) -> decoding.Records | None:
        """Return the next chunk, with its first record in memory.

        Cancelling the call loses nothing.
        """
        if (seen := self._seen) is not None:
            self._seen = None
            if seen.paused and not self._closed:
                self._unseen = seen  # the chunk has more records
            else:
                seen.close()
        if self._unseen is None:
            self._unseen = await self.next()
        if self._unseen is not None:
            await open_next(self._unseen)
        self._seen, self._unseen = self._unseen, None
        return self._seen


class PartitionStream:
    """A stream of one partition. Read it with ``async for``, `chunks()` or `arrow()`.

    Use only one of these ways on a stream. The stream ends at its end offset, if it has one.
    Cancelling the wait for the next record loses nothing.
    """

    def __init__(
        self, open_reader: Callable[[], Awaitable[PartitionReader]], close: Callable[[], None]
    ) -> None:
        self._source = _RecordSource(open_reader, close)
        # The finalizer is on the source, because nothing references the stream itself in `async for
        # x in stream()`.
        weakref.finalize(self._source, close).atexit = False
        self._records = decoding.AsyncRecords(self._source.next)
        self._records.recover = self._source.recover

    def __aiter__(self) -> decoding.AsyncRecords:
        return self._records

    def close(self) -> None:
        """Close the connections now. Iterations over the stream end."""
        self._source.close()

    @property
    def high_watermark(self) -> int:
        """The high watermark in the last response, or -1 before the first response."""
        reader = self._source.reader
        return reader.high_watermark if reader is not None else -1

    async def chunks(self) -> AsyncIterator[decoding.Records]:
        """Yield the records of each fetch, to iterate over with a plain ``for``.

        A large compressed chunk is yielded in several parts, between which the event loop runs.
        """
        while (records := await self._source.next_chunk()) is not None:
            yield records

    async def arrow(
        self,
        *,
        copy: bool = True,
        max_rows: int | None = None,
        columns: Sequence[str] = COLUMNS,
        timestamps: Timestamps = "ms",
    ) -> AsyncIterator["pa.RecordBatch"]:
        """Yield Arrow batches, made without an object per record.

        With ``copy=False`` keys and values are ``binary_view`` columns that point into the buffers
        of the fetch and keep them alive. Spark accepts only copied columns.
        """
        convert = partial(
            to_arrow, copy=copy, max_rows=max_rows, columns=columns, timestamps=timestamps
        )
        async for records in self.chunks():
            while True:
                await open_next(records)
                try:
                    batch = convert(records)
                except CorruptRecords as error:
                    if self._source.recover(error):
                        break
                    raise
                if batch is None:
                    break
                records.worked += batch.nbytes
                yield batch
