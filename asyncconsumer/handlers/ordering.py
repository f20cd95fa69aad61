"""The orderings of handlers: which records may be processed concurrently."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.records.decoding import Record

Ready: TypeAlias = Callable[[tuple[PartitionWork, Item]], None]
"""Make an item ready to be started."""


class Ordering(Protocol):
    """A policy that decides which items may be started. Its methods do not block.

    Records that are added are started in the order of their offsets, unless `add` starts them all.
    A record in `busy` of its partition waits there for its predecessor.
    """

    def add(self, work: PartitionWork, records: Sequence[Record], ready: Ready) -> None:
        """Note records that were added to the ledger of a partition."""

    def may_start(self, work: PartitionWork) -> bool:
        """Return whether the next unstarted record of a partition may be started."""

    def follows_each(self, work: PartitionWork) -> bool:
        """Return whether `start` and `done` must be called for every record of a partition.

        Otherwise they are not called for a record that a handler processes without waiting.
        """

    def start(self, work: PartitionWork, record: Record) -> None:
        """Note a record that is being processed."""

    def postpone(self, work: PartitionWork, record: Record) -> None:
        """Keep a record that waits for its predecessor, whose key is in `busy`."""

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Make the items ready that waited for a processed item."""


class Unordered:
    """The ordering "none": all records may be processed concurrently."""

    def add(self, work: PartitionWork, records: Sequence[Record], ready: Ready) -> None:
        """Do nothing, because workers start the records."""

    def may_start(self, work: PartitionWork) -> bool:
        """Return True, because no record waits for another."""
        return True

    def follows_each(self, work: PartitionWork) -> bool:
        """Return False, because a record that has ended does not matter to others."""
        return False

    def start(self, work: PartitionWork, record: Record) -> None:
        """Do nothing, because no record waits for another."""

    def postpone(self, work: PartitionWork, record: Record) -> None:
        """Refuse, because `busy` is always empty."""
        raise AssertionError(record)

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Do nothing, because no item waits for another."""


class PartitionOrder(Unordered):
    """The ordering "partition": one record of a partition after the other.

    `busy` is not empty while a record is in flight.
    """

    def may_start(self, work: PartitionWork) -> bool:
        """Return whether no record of the partition is in flight."""
        return not work.busy

    def start(self, work: PartitionWork, record: Record) -> None:
        """Start no other record of the partition."""
        work.busy[None] = record

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Allow the next record of the partition."""
        work.busy.clear()


class KeyOrder(Unordered):
    """The ordering "key": one record of a key after the other.

    Records without a key have no order. `busy` has the keys in flight. A key has a queue there only
    if another record of the key waits.
    """

    def start(self, work: PartitionWork, record: Record) -> None:
        """Start no other record of the same key."""
        if record.key is not None:
            work.busy[record.key] = None

    def postpone(self, work: PartitionWork, record: Record) -> None:
        """Keep a record until the record before it with the same key is processed."""
        waiting: deque[Record] | None = work.busy[record.key]
        if waiting is None:
            work.busy[record.key] = deque((record,))
        else:
            waiting.append(record)

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Make the next record of the same key ready."""
        key = item.key  # type: ignore[union-attr] # items are single records here
        if key is not None:
            waiting = work.busy[key]
            if waiting:
                ready((work, waiting.popleft()))
            else:
                del work.busy[key]


ORDERINGS: Final[dict[str, type[Ordering]]] = {
    "key": KeyOrder,
    "partition": PartitionOrder,
    "none": Unordered,
}
"""The orderings of handlers that get single records, by the option `ordering`."""
