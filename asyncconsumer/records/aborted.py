"""The filter for record batches of aborted transactions (`read_committed`)."""

from collections.abc import Callable, Iterable
from operator import index

from asyncconsumer.records.batch_v2 import BatchHeader, is_abort_marker


class Aborted:
    """The aborted transactions that a fetch response lists for one partition.

    `covers` must be called for each record batch, in the order of the log. A transaction begins at
    its first offset and ends with the abort marker of its producer. An abort marker without a
    listed transaction is ignored.
    """

    __slots__ = ("_inside", "_to_come")

    def __init__(self, listed: Iterable[tuple[int, int]]) -> None:
        pairs = [tuple(pair) for pair in listed]
        if any(len(pair) != 2 for pair in pairs):
            raise TypeError("`aborted` must contain pairs of producer id and first offset")
        self._to_come = sorted(((index(first), index(id_)) for id_, first in pairs), reverse=True)
        self._inside: set[int] = set()

    def covers(self, batch: BatchHeader, body: Callable[[], bytes]) -> bool:
        """Return whether the records of the next record batch belong to an aborted transaction.

        `body` returns the decompressed records of the batch. It is called only for control batches.
        """
        if batch.producer < 0:
            return False
        while self._to_come and self._to_come[-1][0] <= batch.last_offset:
            self._inside.add(self._to_come.pop()[1])
        if batch.control:
            if is_abort_marker(batch, body()):
                self._inside.discard(batch.producer)
            return False
        return batch.transactional and batch.producer in self._inside
