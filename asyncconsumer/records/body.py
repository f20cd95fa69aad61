"""The decompressed body of the record batch that is being read, in pure Python."""

from collections.abc import Callable
from mmap import mmap
from typing import Final, Protocol

from asyncconsumer.records.batch_v2 import BodyPart
from asyncconsumer.records.byte_reader import DecodeError
from asyncconsumer.records.compression import BadCompression, inflate

_LEAST_MAPPED: Final = 2**20  # bytes; `mmap` is used, as `bytearray` fills with zeros under the GIL


class Keep(Protocol):
    """A function that decides how many bytes of a decompressed body may stay in memory."""

    def __call__(self, size: int, *, again: bool) -> int:
        """Charge `size` decompressed bytes to the budget. Return how many of them may be kept.

        `again` is true if the same body was decompressed before and then freed. A `size` of 0 means
        that a decompression is about to start.
        """


def keep_all(size: int, *, again: bool) -> int:
    """Return `size`, so that the whole decompressed body is kept.

    This is a `Keep` without a budget.
    """
    return size


class Body:
    """The decompressed body of one record batch, with the read position in it.

    If the body is freed to save memory, it is decompressed again later, and reading continues at
    the same position. This object also counts decompressed bytes.
    """

    def __init__(self, max_decompressed_bytes: int, keep: Keep) -> None:
        self.inflated = 0  # bytes of all bodies since the start of a table
        self.worked = 0  # bytes of all bodies since the event loop last ran
        self.at_once = False  # raise `TooLarge` for bodies that take long
        self.is_held = False  # a decompressed body is in memory
        self.is_windowed = False  # only a part of the body is in memory
        self.entry = 0  # start of the entry in the record set
        self.behind = self.count = 0  # bytes and records that were read
        self._before = 0  # bytes that were read before the last record
        self._max_decompressed_bytes = max_decompressed_bytes
        self._keep = keep

    def begin(self, entry: int) -> None:
        """Start to read the record batch at position `entry` of the record set.

        If it is the batch that was read last, keep the read position in its body.
        """
        if entry != self.entry:
            self.entry = entry
            self.behind = self.count = 0
        self.is_held = self.is_windowed = False

    def passed(self, behind: int) -> None:
        """Count one record as read. `behind` is the position after the record in the body."""
        self._before, self.behind = self.behind, behind
        self.count += 1

    def unread(self) -> Callable[[], None]:
        """Set the read position back by one record. Return a function that reverts this."""
        undone = self.entry, self.behind, self.count
        self.behind, self.count = self._before, self.count - 1

        def redo() -> None:
            if self.entry == undone[0]:
                _, self.behind, self.count = undone

        return redo

    @property
    def is_enough(self) -> bool:
        """Whether the current Arrow table has taken more decompressed bytes than allowed."""
        return self.inflated > self._max_decompressed_bytes

    def inflate(self, codec: int, source: bytes, resume: int, max_size: int | None = None) -> bytes:
        """Return `source` decompressed, to at most `max_size` bytes.

        If that is impossible, raise `DecodeError` with `resume`, the offset at which reading may
        continue. If `at_once` is set and the work would block the event loop for too long, raise
        `TooLarge`.
        """
        rooms: list[bytearray | mmap] = [bytearray()]

        def room_of(size: int) -> bytearray | mmap:
            rooms.clear()
            rooms.append(mmap(-1, size) if size >= _LEAST_MAPPED else bytearray(size))
            return rooms[0]

        self._keep(0, again=False)
        maximum = self._max_decompressed_bytes
        limit = maximum if max_size is None else min(max_size, maximum)
        try:
            used = inflate(codec, memoryview(source), room_of, limit, self.at_once)
        except BadCompression as error:
            raise DecodeError(str(error), resume) from None
        self.inflated += used
        self.worked += used
        self.is_held = True
        return bytes(rooms.pop()[:used])

    def part(self, body: bytes, end_of: Callable[[bytes, int], int | None]) -> BodyPart:
        """Return the whole `body`, or only complete records from the read position on.

        The returned part is as large as the budget allows. `end_of` returns the position after the
        record at a position, or None for a corrupt record.
        """
        size, start = len(body), self.behind
        keep_size = self._keep(size, again=self.count > 0) if self.is_held else size
        if keep_size >= size:
            return BodyPart(body, 0, size)
        end: int | None = start
        while end is not None and end - start < keep_size and end < size:
            end = end_of(body, end)
        if end is None or end - start > size // 2:  # keep all if corrupt or mostly kept
            self._keep(size, again=False)
            return BodyPart(body, 0, size)
        self.is_windowed = end < size
        self._keep(max(1, end - start), again=False)
        return BodyPart(body[start:end], start, size)
