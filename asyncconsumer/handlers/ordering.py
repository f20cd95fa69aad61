"""The orderings of handlers, which decide which records may be processed concurrently."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Protocol, TypeAlias

from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.records.decoding import Record

Ready: TypeAlias = Callable[[tuple[PartitionWork, Item]], None]
"""A function that makes a record or batch ready to be started."""


class Ordering(Protocol):
    """A policy that decides which records or batches may be started. Its methods do not block.

    Records are started in the order of their offsets, unless `add` starts them all at once. If a
    record must wait for another one in flight, it is kept in `busy` of its partition.

    If `is_serial` is true, at most one record of a partition is in flight.
    """

    is_serial: ClassVar[bool]

    def add(self, work: PartitionWork, records: Sequence[Record], ready: Ready) -> None:
        """Call `ready` for those of the added records that may start at once.

        Workers, or calls of `done`, start the other records later.
        """

    def may_start(self, work: PartitionWork) -> bool:
        """Return whether the next unstarted record of a partition may be started."""

    def follows_each(self, work: PartitionWork) -> bool:
        """Return whether `start` and `done` must be called for every record of a partition.

        Otherwise they are not called for a record whose handler returns without a wait.
        """

    def start(self, work: PartitionWork, record: Record) -> None:
        """Note that a record of the partition is being processed."""

    def postpone(self, work: PartitionWork, record: Record) -> None:
        """Keep a record until the earlier record of its key, which is in `busy`, is processed."""

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Call `ready` for the items that waited for `item`, because it is processed."""


class Unordered:
    """The ordering "none", in which all records may be processed concurrently."""

    is_serial: ClassVar[bool] = False

    def add(self, work: PartitionWork, records: Sequence[Record], ready: Ready) -> None:
        """Do nothing, because workers start the records."""

    def may_start(self, work: PartitionWork) -> bool:
        """Return True, because no record waits for another."""
        return True

    def follows_each(self, work: PartitionWork) -> bool:
        """Return False, because no record waits for another."""
        return False

    def start(self, work: PartitionWork, record: Record) -> None:
        """Do nothing, because no record waits for another."""

    def postpone(self, work: PartitionWork, record: Record) -> None:
        """Raise an error, because no record waits for another."""
        raise AssertionError(record)

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Do nothing, because no item waits for another."""


class PartitionOrder(Unordered):
    """The ordering "partition", in which records of a partition are processed one after the other.

    `busy` is not empty while a record is in flight.
    """

    is_serial: ClassVar[bool] = True

    def may_start(self, work: PartitionWork) -> bool:
        """Return whether no record of the partition is in flight."""
        return not work.busy

    def start(self, work: PartitionWork, record: Record) -> None:
        """Prevent other records of the partition from being started."""
        work.busy[None] = record

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Allow the next record of the partition to be started."""
        work.busy.clear()


class KeyOrder(Unordered):
    """The ordering "key", in which records of a key are processed one after the other.

    Records without a key have no order. `busy` maps each key in flight to a queue of the records
    that wait for it, or to None.
    """

    def start(self, work: PartitionWork, record: Record) -> None:
        """Prevent other records of the same key from being started."""
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
        """Make the next record of the same key ready. If none waits, the key is no longer busy."""
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
