"""The outputs of handlers in an exactly-once app, kept until a transaction writes them.

The outputs of an item are written in the transaction that commits its offsets.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncconsumer.handlers.commit_metadata import OffsetWithRanges, Ranges, decode, encode
from asyncconsumer.records.record import Headers
from asyncconsumer.types import Offset

if TYPE_CHECKING:
    from asyncconsumer.handlers.partition_work import Item, PartitionWork
    from asyncconsumer.producer.bulk import BulkRecord

_BYTES_OF_A_RECORD: Final = 200  # the memory of a record, without key and value


class Outputs:
    """The outputs of one item, which is a record or a batch of the partition of `work`.

    Many of these objects may exist, so each refers to few others to spare the garbage collector.
    """

    __slots__ = ("first", "item", "records", "refused", "size", "work")

    def __init__(self, work: "PartitionWork", item: "Item", refused: "Refused") -> None:
        self.work = work
        self.item = item
        self.first: int = item[0].offset if isinstance(item, list) else item.offset
        self.records: list[BulkRecord] = []
        self.refused = refused
        self.size = 0

    @property
    def offsets(self) -> list[int]:
        """The offsets of the item."""
        item = self.item
        return [each.offset for each in item] if isinstance(item, list) else [self.first]

    def add(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Add a serialized record to write. Without a partition, its key selects one."""
        self.records.append((topic, key, value, headers, partition))
        self.size += _BYTES_OF_A_RECORD + len(key or b"") + len(value or b"")


Refused = Callable[[Outputs, Exception], object]
"""A function of outputs with a record that its topic rejected, and the error."""


class CommitPlan(NamedTuple):
    """An offset to commit, and the outputs to write in the same transaction.

    The offset and its metadata mark records as processed. The outputs are those of these records.
    """

    offset: Offset
    outputs: Sequence[Outputs]


def plan_commit(offset: int, outputs: Mapping[int, Outputs], longest: int) -> CommitPlan:
    """Return the commit of `offset`, with the outputs of the records that it marks as processed.

    `outputs` has the outputs of one partition, by the first offset of their item. Processed records
    after `offset` are marked in its metadata, which has at most `longest` characters. A batch is
    marked completely or not at all.
    """
    full = Offset.of(offset).within(longest)
    base, ranges = int(full), decode(full, full.metadata)
    batches = [each.offsets for each in outputs.values() if isinstance(each.item, list)]
    while (cut := _first_straddling(base, ranges, batches)) is not None:
        base = min(base, cut)
        ranges = [(start, min(stop, cut)) for start, stop in ranges if start < cut and stop > base]
        metadata = encode(base, ranges)
        full = OffsetWithRanges(base, leader_epoch=full.leader_epoch, metadata=metadata)
    covered = [each for each in outputs.values() if _covers(base, ranges, each.first)]
    return CommitPlan(full, covered)


def _first_straddling(base: int, ranges: Ranges, batches: Iterable[Collection[int]]) -> int | None:
    """Return the first offset of the earliest batch that is only partly marked, or None.

    Offsets before `base` and in `ranges` are marked as processed.
    """
    return min(
        (
            min(offsets)
            for offsets in batches
            if len({_covers(base, ranges, offset) for offset in offsets}) > 1
        ),
        default=None,
    )


def _covers(base: int, ranges: Ranges, offset: int) -> bool:
    if offset < base:
        return True
    index = bisect_right(ranges, offset, key=lambda span: span[0]) - 1
    return index >= 0 and offset < ranges[index][1]
