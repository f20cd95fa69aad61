"""Which records may be worked on side by side, and which wait for one another."""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.records.decoding import Record

Ready: TypeAlias = Callable[[tuple[PartitionWork, Item]], None]
"""Where to put what may be begun."""


class Ordering(Protocol):
    """Decides what may be begun. Nothing here waits."""

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """Take records in, each to be made ready when it is its turn."""

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """Something was finished: make ready what waited for it."""


class Unordered:
    """No order."""

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """All may begin."""
        for record in records:
            ready((share, record))

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """Nothing waited."""


class PartitionOrder:
    """One record of a partition after the other."""

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """The first begins if nothing is being worked on."""
        waiting: deque[Record] | None = share.lanes.get(None)
        if waiting is not None:
            waiting.extend(records)
        elif records:
            share.lanes[None] = deque(records[1:])
            ready((share, records[0]))

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """The next."""
        waiting = share.lanes.get(None)
        if waiting:
            ready((share, waiting.popleft()))
        else:
            share.lanes.pop(None, None)


class KeyOrder:
    """One record of a key after the other; records without a key have no order.

    A key that is being worked on is in `lanes`; it has a queue only once another record waits.
    """

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """Those begin of whose key nothing is being worked on."""
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
        """The next of its key."""
        key = item.key  # type: ignore[union-attr] # only records are given out here
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
