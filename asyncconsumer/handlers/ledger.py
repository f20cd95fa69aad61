"""What of one partition is finished, though records are finished in any order."""

from collections.abc import Iterator
from itertools import chain, pairwise

from asyncconsumer.handlers.commit_metadata import OffsetWithRanges, Ranges, decode, encode, merged
from asyncconsumer.types import Offset


class Ledger:
    """The account of one partition, from where the group went on.

    It keeps what is not finished. All else below `position` is: also offsets that never had a
    record, for compaction or a transaction took them, which so hold nothing up. A dict keeps its
    order, so the first key is what a commit may say, and to finish a record is one deletion.
    """

    def __init__(self, start: int) -> None:
        kept = Offset.of(start)
        self.position: int | None = int(kept) if start >= 0 else None  # nothing beyond was begun
        self.leader_epoch = kept.leader_epoch
        self._unfinished: dict[int, None] = {}
        self._before: Ranges = decode(kept, kept.metadata)  # finished by whoever had it last
        self._before_epoch = kept.leader_epoch  # of the log in which it was

    def meet(self, leader_epoch: int) -> None:
        """What is read next was written under this leader, or earlier ones.

        A leader that came after the commit may have cut the log back and written other records at
        the offsets that were finished. Better to repeat some than to lose these; so also where it
        is not known who wrote them.
        """
        if not 0 <= leader_epoch <= self._before_epoch:
            self._before = []

    def reach(self, position: int, leader_epoch: int) -> None:
        """All that was read below this offset was begun, or is not there."""
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
        """Whether whoever had the partition last was done with this record."""
        for start, stop in self._before:
            if offset < stop:
                return offset >= start
        return False

    @property
    def knows_finished(self) -> bool:
        """Whether `is_finished` need be asked at all."""
        return bool(self._before)

    def begin(self, offset: int) -> None:
        """This record is to be worked on. Records come in the order of their offsets."""
        self._unfinished[offset] = None

    def finish(self, offset: int) -> None:
        """It was."""
        del self._unfinished[offset]

    def is_unfinished(self, offset: int) -> bool:
        """Whether it was begun, and is not finished."""
        return offset in self._unfinished

    @property
    def unfinished(self) -> list[int]:
        """The offsets that were begun and are not finished."""
        return list(self._unfinished)

    @property
    def first(self) -> int:
        """Up to where all is finished; only once something was read."""
        assert self.position is not None
        return next(iter(self._unfinished), self.position)

    def committable(self) -> Offset | None:
        """What a commit may say: where all is finished up to, and beside it what is beyond."""
        if self.position is None:
            return None
        first = self.first
        metadata = encode(first, merged(chain(self._beyond(), self._before_position())))
        epoch = max(self.leader_epoch, self._before_epoch) if self._before else self.leader_epoch
        return OffsetWithRanges(first, leader_epoch=epoch, metadata=metadata)

    def _beyond(self) -> Iterator[tuple[int, int]]:
        """Finished from the first unfinished record up to the position."""
        if not self._unfinished:
            return
        assert self.position is not None
        for one, following in pairwise(chain(self._unfinished, [self.position])):
            if following > one + 1:
                yield one + 1, following

    def _before_position(self) -> Iterator[tuple[int, int]]:
        """Finished by others, beyond what was read so far."""
        assert self.position is not None
        for start, stop in self._before:
            if stop > self.position:
                yield max(start, self.position), stop
