"""The processed offsets of one partition. Its records may be processed in any order."""

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice, pairwise

from asyncconsumer.handlers.commit_metadata import OffsetWithRanges, Ranges, decode, encode, merged
from asyncconsumer.records.decoding import Record, RecordBlock
from asyncconsumer.types import Offset


class Ledger:
    """The processed and unprocessed offsets of one partition, from the committed offset on.

    The ledger keeps the unprocessed offsets. All other offsets below `position` count as processed.
    These include offsets without a record, after compaction or in transactions.

    Records are added in blocks, and started in the order of their offsets. If a record is started
    and processed at once, only the index of its block moves. If a record has to wait, its offset is
    kept until it is processed.
    """

    def __init__(self, start: int) -> None:
        committed = Offset.of(start)
        self.position: int | None = int(committed) if start >= 0 else None  # next offset to read
        self.leader_epoch = committed.leader_epoch
        self.unstarted: deque[RecordBlock] = deque()
        # By offset, with the size. A dict keeps insertion order, so its first key is the smallest.
        self._started: dict[int, int] = {}
        # the offset and timestamp of the first record of each block with unprocessed records
        self._times: deque[tuple[int, int]] = deque()
        self._before: Ranges = decode(committed, committed.metadata)  # processed by the last owner
        self._before_epoch = committed.leader_epoch  # the leader epoch of `_before`

    def drop_if_truncated(self, leader_epoch: int) -> None:
        """Drop the ranges that the last owner processed, unless `leader_epoch` proves them valid.

        `leader_epoch` is that of the records read next. A leader elected after the commit may have
        truncated the log and written other records at the processed offsets. Such records must not
        be skipped. An unknown leader epoch counts as a later one.
        """
        if not 0 <= leader_epoch <= self._before_epoch:
            self._before = []

    def advance_position(self, position: int, leader_epoch: int) -> None:
        """Set the position, which is the next offset to read. All records before it were added.

        Drop the last owner's processed ranges that end before the position, because they are no
        longer needed.
        """
        self.position = position
        self.leader_epoch = leader_epoch
        count = 0
        for _, stop in self._before:
            if stop > position:
                break
            count += 1
        if count:
            self._before = self._before[count:]

    def is_finished(self, offset: int) -> bool:
        """Return whether the partition's last owner processed the record at this offset."""
        for start, stop in self._before:
            if offset < stop:
                return offset >= start
        return False

    @property
    def knows_finished(self) -> bool:
        """Whether the last owner processed records that this member has not read yet."""
        return bool(self._before)

    def add(self, block: RecordBlock) -> None:
        """Add records to process, whose offsets follow those of all earlier records."""
        if records := block.records:
            self.unstarted.append(block)
            self._times.append((records[0].offset, records[0].timestamp))
            self._drop_times(next(self._unfinished()))

    def _drop_times(self, first: int) -> None:
        """Drop the timestamps of blocks that end before `first`, the first unprocessed offset."""
        while len(self._times) > 1 and self._times[1][0] <= first:
            self._times.popleft()

    @property
    def oldest_timestamp(self) -> int | None:
        """The timestamp in ms of the oldest unprocessed record, or None if all are processed.

        It is approximate: it is the timestamp of the first record in the same block.
        """
        first = next(self._unfinished(), None)
        if first is None:
            return None
        self._drop_times(first)
        return self._times[0][1]

    def start_next(self, *, in_run: bool = False) -> Record:
        """Mark the next unstarted record as started, and return it.

        With `in_run`, keep a block that has no unstarted records left. The worker that iterates
        over the block removes it later.
        """
        block = self.unstarted[0]
        index = block.index
        record = block.records[index]
        self._started[record.offset] = block.size_between(index, index + 1)
        block.index = block.counted = index + 1
        if not in_run and block.index == len(block.records):
            self.unstarted.popleft()
        return record

    def start_all(self) -> None:
        """Mark all records as started."""
        while self.unstarted:
            self.start_next()

    def drop_empty_block(self) -> None:
        """Remove the first block if all of its records are started."""
        block = self.unstarted[0]
        if block.index == len(block.records):
            self.unstarted.popleft()

    def drop_unstarted(self) -> None:
        """Free the memory of unstarted records. Keep their offsets as unprocessed."""
        for block in self.unstarted:
            self._started.update(dict.fromkeys(_offsets(block), 0))
        self.unstarted.clear()

    def finish(self, offset: int) -> int:
        """Mark the started record at `offset` as processed. Return its size in bytes."""
        return self._started.pop(offset)

    def is_unfinished(self, offset: int) -> bool:
        """Return whether the record at this offset was added and is not processed."""
        return offset in self._started or any(offset in _offsets(block) for block in self.unstarted)

    @property
    def unfinished(self) -> list[int]:
        """The offsets that were added and are not processed."""
        return list(self._unfinished())

    def _unfinished(self) -> Iterator[int]:
        blocks = (_offsets(block) for block in self.unstarted)
        return chain(self._started, chain.from_iterable(blocks))

    @property
    def first(self) -> int:
        """The first offset that is not processed. The position must be known."""
        assert self.position is not None
        return next(self._unfinished(), self.position)

    def committable(self) -> Offset | None:
        """Return the offset to commit, or None before the position is known.

        Its metadata lists the ranges of processed offsets after it.
        """
        if self.position is None:
            return None
        first = self.first
        metadata = encode(first, merged(chain(self._beyond(), self._before_position())))
        epoch = max(self.leader_epoch, self._before_epoch) if self._before else self.leader_epoch
        return OffsetWithRanges(first, leader_epoch=epoch, metadata=metadata)

    def _beyond(self) -> Iterator[tuple[int, int]]:
        """Yield the processed ranges between the first unprocessed offset and the position."""
        assert self.position is not None
        for offset, following in pairwise(chain(self._unfinished(), [self.position])):
            if following > offset + 1:
                yield offset + 1, following

    def _before_position(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges that the last owner processed at or after the position."""
        assert self.position is not None
        for start, stop in self._before:
            if stop > self.position:
                yield max(start, self.position), stop


def _offsets(block: RecordBlock) -> Iterator[int]:
    """Yield the offsets of the records that are not started."""
    return (record.offset for record in islice(block.records, block.index, None))
