"""Records that were taken together, with their sizes, in pure Python."""

from collections.abc import Iterable
from typing import Final, final

from asyncconsumer.records.record import Record

_SIZE_OF_A_RECORD: Final = 200  # bytes, without key, value and headers
_SIZE_OF_A_HEADER: Final = 100  # bytes, without name and value


@final
class RecordBlock:
    """Records of one partition that were taken together.

    The function of a `BlockRun` has been called with the records before `index`.
    """

    __slots__ = ("_ends", "counted", "index", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.index = 0
        self.counted = 0  # records before this index are not in flight any more
        self._ends: list[int] = []  # for each record, the size of it and of all before it

    def fill(self, records: Iterable[Record], max_count: int, max_size: float, /) -> bool:
        """Append records, until there are `max_count`, or until their size is `max_size` bytes.

        The last record may exceed `max_size`. Return whether one of the limits was reached. If the
        iteration raises an error, the block has the records before it.
        """
        iterator = iter(records)
        while len(self.records) < max_count and self._size_until(len(self.records)) < max_size:
            record = next(iterator, None)
            if record is None:
                return False
            if not isinstance(record, Record):
                raise TypeError(f"a block must contain Record objects, not {type(record).__name__}")
            self._ends.append(self._size_until(len(self.records)) + _size_of(record))
            self.records.append(record)
        return True

    def size_between(self, start: int, stop: int, /) -> int:
        """Return the approximate size in memory of the records from `start` up to `stop`."""
        if not 0 <= start <= stop <= len(self._ends):
            raise IndexError("the block has no such records")
        return self._size_until(stop) - self._size_until(start)

    def _size_until(self, index: int) -> int:
        return self._ends[index - 1] if index else 0


def _size_of(record: Record) -> int:
    size = _SIZE_OF_A_RECORD + len(record.value or b"") + len(record.key or b"")
    for name, content in record.headers:
        size += _SIZE_OF_A_HEADER + len(name) + len(content or b"")
    return size
