"""The orderings of handlers: which records may be processed concurrently."""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.records.decoding import Record

Ready: TypeAlias = Callable[[tuple[PartitionWork, Item]], None]
"""Make an item ready to be started."""


class Ordering(Protocol):
    """A policy that decides which items may be started. Its methods do not block."""

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """Add records. Make each ready when its predecessors are processed."""

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """Make the items ready that waited for a processed item."""


class Unordered:
    """The ordering "none": all records may be processed concurrently."""

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """Make all records ready."""
        for record in records:
            ready((share, record))

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """Do nothing, because no item waits for another."""


class PartitionOrder:
    """The ordering "partition": one record of a partition after the other."""

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """Make the first record ready if no other is in flight."""
        waiting: deque[Record] | None = share.lanes.get(None)
        if waiting is not None:
            waiting.extend(records)
        elif records:
            share.lanes[None] = deque(records[1:])
            ready((share, records[0]))

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """Make the next record of the partition ready."""
        waiting = share.lanes.get(None)
        if waiting:
            ready((share, waiting.popleft()))
        else:
            share.lanes.pop(None, None)


class KeyOrder:
    """The ordering "key": one record of a key after the other.

    Records without a key have no order. A key in flight is in `lanes`. It has a queue only if
    another record of the key waits.
    """

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """Make those records ready whose key is not in flight."""
        lanes: dict[bytes, deque[Record] | None] = share.lanes
        for record in records:
            key = record.key
            if key is None:
                ready((share, record))
            elif key not in lanes:
                lanes[key] = None
                ready((share, record))
            elif (waiting := lanes[key]) is None:
                lanes[key] = deque((record,))
            else:
                waiting.append(record)

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """Make the next record of the same key ready."""
        key = item.key  # type: ignore[union-attr] # items are single records here
        if key is not None:
            waiting = share.lanes[key]
            if waiting:
                ready((share, waiting.popleft()))
            else:
                del share.lanes[key]


SINGLY: Final[dict[str, type[Ordering]]] = {
    "key": KeyOrder,
    "partition": PartitionOrder,
    "none": Unordered,
}
