"""The decompressed body of the batch that is being read, in pure Python."""

from collections.abc import Callable
from mmap import mmap
from typing import Final, Protocol

from asyncconsumer.records.batch_v2 import BodyPart
from asyncconsumer.records.byte_reader import DecodeError
from asyncconsumer.records.compression import BadCompression, inflate

_LEAST_MAPPED: Final = 2**20  # bytes: fresh pages need not be filled with zeros while threads wait


class Keep(Protocol):
    """Says how much of a decompressed body may stay in memory."""

    def __call__(self, size: int, *, again: bool) -> int:
        """Of so many bytes, which were evicted before if `again`; 0 bytes are to come."""


def keep_all(size: int, *, again: bool) -> int:
    """Nobody counts."""
    return size


class Body:
    """How far the body of one entry was read, and what decompressing it costs.

    It can be read on from there after its bytes were freed.
    """

    def __init__(self, max_inflated: int, keep: Keep) -> None:
        self.inflated = 0  # bytes of all bodies since a table was begun
        self.worked = 0  # bytes of all bodies since the event loop last ran
        self.at_once = False  # raise TooLarge for what takes long
        self.is_held = False  # one that was decompressed
        self.is_windowed = False  # only a part of it is in memory
        self.entry = 0  # where its entry begins in the record set
        self.behind = self.count = 0  # bytes and records that were read
        self._before = 0  # bytes that were read before the last record
        self._max_inflated = max_inflated
        self._keep = keep

    def begin(self, entry: int) -> None:
        """Read that entry: from its beginning, or from where it was left."""
        if entry != self.entry:
            self.entry = entry
            self.behind = self.count = 0
        self.is_held = self.is_windowed = False

    def passed(self, behind: int) -> None:
        """One more record was read; the next begins there."""
        self._before, self.behind = self.behind, behind
        self.count += 1

    def unread(self) -> Callable[[], None]:
        """Be before the record read last, should it be decompressed again; returns the opposite."""
        undone = self.entry, self.behind, self.count
        self.behind, self.count = self._before, self.count - 1

        def redo() -> None:
            if self.entry == undone[0]:
                _, self.behind, self.count = undone

        return redo

    @property
    def is_enough(self) -> bool:
        """Whether a table must not have what was inflated last besides what it has."""
        return self.inflated > self._max_inflated

    def inflate(self, codec: int, source: bytes, resume: int, most: int | None = None) -> bytes:
        """Decompress all of it, to `most` bytes if there is such a limit; or raise TooLarge."""
        rooms: list[bytearray | mmap] = [bytearray()]

        def room_of(size: int) -> bytearray | mmap:
            rooms.clear()
            rooms.append(mmap(-1, size) if size >= _LEAST_MAPPED else bytearray(size))
            return rooms[0]

        self._keep(0, again=False)
        limit = self._max_inflated if most is None else min(most, self._max_inflated)
        try:
            used = inflate(codec, memoryview(source), room_of, limit, self.at_once)
        except BadCompression as error:
            raise DecodeError(str(error), resume) from None
        self.inflated += used
        self.worked += used
        self.is_held = True
        return bytes(rooms.pop()[:used])

    def part(self, body: bytes, end_of: Callable[[bytes, int], int | None]) -> BodyPart:
        """What is kept of it: all, or some whole records from where it is read on."""
        size, start = len(body), self.behind
        kept = self._keep(size, again=self.count > 0) if self.is_held else size
        if kept >= size:
            return BodyPart(body, 0, size)
        end: int | None = start
        while end is not None and end - start < kept and end < size:
            end = end_of(body, end)
        if end is None or end - start > size // 2:  # what is damaged, or most of it, is kept whole
            self._keep(size, again=False)
            return BodyPart(body, 0, size)
        self.is_windowed = end < size
        self._keep(max(1, end - start), again=False)
        return BodyPart(body[start:end], start, size)
