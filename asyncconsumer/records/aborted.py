"""Which batches of a record set belong to aborted transactions (`read_committed`)."""

from collections.abc import Callable, Iterable
from operator import index

from asyncconsumer.records.batch_v2 import BatchHeader, is_abort_marker


class Aborted:
    """Follows the aborted transactions that a broker listed, along the batches they lie in.

    A transaction begins at its first offset and ends with the abort marker of its producer; a
    marker too many does no harm.
    """

    __slots__ = ("_inside", "_to_come")

    def __init__(self, listed: Iterable[tuple[int, int]]) -> None:
        pairs = [tuple(pair) for pair in listed]
        if any(len(pair) != 2 for pair in pairs):
            raise TypeError("aborted must hold pairs of producer id and first offset")
        self._to_come = sorted(((index(first), index(id_)) for id_, first in pairs), reverse=True)
        self._inside: set[int] = set()

    def covers(self, batch: BatchHeader, body: Callable[[], bytes]) -> bool:
        """Whether the records of this batch, the next in order, were taken back."""
        if batch.producer < 0:
            return False
        while self._to_come and self._to_come[-1][0] <= batch.last_offset:
            self._inside.add(self._to_come.pop()[1])
        if batch.control:
            if is_abort_marker(batch, body()):
                self._inside.discard(batch.producer)
            return False
        return batch.transactional and batch.producer in self._inside
