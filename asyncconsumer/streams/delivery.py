"""The state of a stream's delivery: the current chunk, and the acknowledged offsets."""

from collections.abc import Collection

from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.records import decoding
from asyncconsumer.types import Offset, TopicPartition


class Delivery:
    """The chunk that a stream delivers, and the acknowledged offset of each partition.

    A record is delivered when it is returned to the reader. It is acknowledged when the reader asks
    for the next one. `AsyncRecords` knows which records are delivered, and this class which are
    acknowledged.
    """

    def __init__(self, records: decoding.AsyncRecords) -> None:
        self.chunk: Chunk | None = None  # the chunk being delivered
        self.is_new = False  # nothing of the chunk was delivered yet
        self._records = records
        self._whole = False  # the chunk was delivered as a whole, not record by record
        self._acknowledged = -1  # the chunk is acknowledged up to this offset
        self._counted = -1  # the chunk's records before this offset were counted
        self._finished: dict[TopicPartition, int] = {}  # acknowledged offsets of earlier chunks

    @property
    def begun(self) -> Chunk | None:
        """The current chunk if some of its records were delivered, otherwise None."""
        return None if self.is_new else self.chunk

    def hold(self, chunk: Chunk) -> None:
        """Make `chunk` the next one to deliver."""
        self.count()  # a chunk that is delivered in parts is held again
        self.chunk, self.is_new = chunk, True
        self._acknowledged = self._counted = chunk.records.next_offset

    def begin(self, *, whole: bool) -> None:
        """Note that delivery of the chunk begins, as a whole (`whole`) or record by record."""
        chunk = self.chunk
        is_first = self.is_new and chunk is not None and self._counted <= chunk.offset
        if is_first and chunk is not None and chunk.meter is not None:
            chunk.meter.begin(chunk.timestamp)
        self.is_new, self._whole = False, whole

    def acknowledge(self) -> None:
        """Count all delivered records as processed."""
        if self.begun is not None:
            self._acknowledged = self.begun.records.next_offset
            self._whole = False

    def finish_chunk(self, chunk: Chunk) -> None:
        """Note that all records of a chunk were read and are acknowledged."""
        self._finish(chunk, chunk.next_offset)

    def suspend(self) -> Chunk:
        """Remove the current chunk and return it, so that its other records can be delivered later.

        The records that were delivered count as acknowledged.
        """
        assert self.chunk is not None
        chunk = self.chunk
        self._finish(chunk, max(chunk.records.next_offset, chunk.offset))
        self.drop()
        return chunk

    def _finish(self, chunk: Chunk, offset: int) -> None:
        self._finished[chunk.partition] = Offset(offset, leader_epoch=chunk.leader_epoch)

    def drop(self) -> None:
        """Remove the current chunk, without acknowledging the records delivered from it."""
        self.count()
        self.chunk, self.is_new = None, False

    def count(self) -> None:
        """Count the records delivered since the last call, and their bytes, in the metrics.

        The bytes are an estimate: the part of the chunk's bytes that corresponds to the offsets of
        these records.
        """
        chunk = self.chunk
        if chunk is None or chunk.meter is None:
            return
        reached = min(chunk.records.next_offset, chunk.next_offset)
        if (records := reached - self._counted) > 0:
            self._counted = reached
            chunk.meter.add(records, chunk.size * records / (chunk.next_offset - chunk.offset))

    def forget(self, partition: TopicPartition) -> None:
        """Forget the acknowledged offset of a partition."""
        self._finished.pop(partition, None)

    # --- queries ---------------------------------------------------------------------------------

    @property
    def is_unacknowledged(self) -> bool:
        """Whether at least one delivered record is not acknowledged yet."""
        return self.begun is not None and (self._whole or self._is_ahead(self.begun))

    @property
    def unacknowledged_chunk(self) -> Chunk | None:
        """The current chunk, or None if there is none or all of its records are acknowledged."""
        chunk = self.chunk
        if chunk is None or self._acknowledged >= chunk.next_offset:
            return None
        return chunk

    def is_unacknowledged_of(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether at least one delivered record of these partitions is unacknowledged."""
        chunk = self.chunk
        return chunk is not None and chunk.partition in partitions and self._is_ahead(chunk)

    def _is_ahead(self, chunk: Chunk) -> bool:
        return chunk.records.next_offset > max(self._acknowledged, chunk.offset)

    @property
    def whole_partition(self) -> TopicPartition | None:
        """The partition of the current chunk if it was delivered as a whole, otherwise None."""
        return self.begun.partition if self.begun is not None and self._whole else None

    def finished(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset after the last acknowledged record."""
        finished, chunk = dict(self._finished), self.chunk
        if chunk is not None:
            records, done = self._records, max(chunk.offset, self._acknowledged)
            if records.current is chunk.records and records.last_offset >= chunk.offset:
                # a request acknowledges the record before it, even if the request was cancelled
                read = records.last_offset if records.in_flight else chunk.records.next_offset
                done = max(done, read)
            finished[chunk.partition] = Offset(done, leader_epoch=chunk.leader_epoch)
        return finished

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last delivered record of a partition.

        Return None if no record of it was delivered.
        """
        if self.chunk is not None and self.chunk.partition == partition:
            return self.chunk.records.next_offset
        return self._finished.get(partition)
