"""The processed offsets of one partition, whose records are processed in any order."""

from collections.abc import Iterator
from itertools import chain, pairwise

from asyncconsumer.handlers.commit_metadata import OffsetWithRanges, Ranges, decode, encode, merged
from asyncconsumer.types import Offset


class Ledger:
    """The processed and unprocessed offsets of one partition, from the committed offset on.

    The ledger keeps the unprocessed offsets. All other offsets below `position` count as processed.
    This includes offsets without a record, after compaction or in transactions.

    A dict keeps insertion order, so its first key is the offset to commit. To mark a record as
    processed is one deletion.
    """

    def __init__(self, start: int) -> None:
        kept = Offset.of(start)
        self.position: int | None = int(kept) if start >= 0 else None  # the next offset to read
        self.leader_epoch = kept.leader_epoch
        self._unfinished: dict[int, None] = {}
        self._before: Ranges = decode(kept, kept.metadata)  # processed by the last owner
        self._before_epoch = kept.leader_epoch  # the leader epoch of `_before`

    def meet(self, leader_epoch: int) -> None:
        """Note the leader epoch of the records read next, and drop ranges that it makes uncertain.

        A leader elected after the commit may have truncated the log and written other records at
        the processed offsets. Repeating records is better than losing those. An unknown leader
        epoch is treated in the same way.
        """
        if not 0 <= leader_epoch <= self._before_epoch:
            self._before = []

    def reach(self, position: int, leader_epoch: int) -> None:
        """Move the position: all records below it were begun, or do not exist."""
        self.position = position
        self.leader_epoch = leader_epoch
        gone = 0
        for _, stop in self._before:
            if stop > position:
                break
            gone += 1
        if gone:
            self._before = self._before[gone:]

    def is_finished(self, offset: int) -> bool:
        """Return whether the last owner of the partition processed this record."""
        for start, stop in self._before:
            if offset < stop:
                return offset >= start
        return False

    @property
    def knows_finished(self) -> bool:
        """Whether `is_finished` can return True for any record."""
        return bool(self._before)

    def begin(self, offset: int) -> None:
        """Add a record to process. Records are added in the order of their offsets."""
        self._unfinished[offset] = None

    def finish(self, offset: int) -> None:
        """Mark the record at `offset` as processed."""
        del self._unfinished[offset]

    def is_unfinished(self, offset: int) -> bool:
        """Return whether a record was added and is not processed."""
        return offset in self._unfinished

    @property
    def unfinished(self) -> list[int]:
        """The offsets that were added and are not processed."""
        return list(self._unfinished)

    @property
    def first(self) -> int:
        """The first offset that is not processed. It needs a known position."""
        assert self.position is not None
        return next(iter(self._unfinished), self.position)

    def committable(self) -> Offset | None:
        """Return the offset to commit, with the ranges processed after it in its metadata."""
        if self.position is None:
            return None
        first = self.first
        metadata = encode(first, merged(chain(self._beyond(), self._before_position())))
        epoch = max(self.leader_epoch, self._before_epoch) if self._before else self.leader_epoch
        return OffsetWithRanges(first, leader_epoch=epoch, metadata=metadata)

    def _beyond(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges processed between the first unprocessed record and the position."""
        if not self._unfinished:
            return
        assert self.position is not None
        for one, following in pairwise(chain(self._unfinished, [self.position])):
            if following > one + 1:
                yield one + 1, following

    def _before_position(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges at or after the position that the last owner processed."""
        assert self.position is not None
        for start, stop in self._before:
            if stop > self.position:
                yield max(start, self.position), stop
