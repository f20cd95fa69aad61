"""One partition's record set as an iterator, in pure Python."""

import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from operator import add, gt
from typing import TYPE_CHECKING, Protocol, final

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.wire.aborted import Aborted
from asyncconsumer.wire.body import keep_all
from asyncconsumer.wire.column_buffers import AS_VIEWS, Table, sizes_of, table_of
from asyncconsumer.wire.reader import MOST, Damage
from asyncconsumer.wire.record import Record
from asyncconsumer.wire.walk import Limits, Walk

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer


class Bodies(Protocol):
    """What decompressed bodies are charged to; `asyncconsumer.chunks.bodies` has it."""

    def make_room(self, reader: "Records", /) -> None:
        """The reader is about to decompress a body."""

    def hold(self, reader: "Records", size: int, again: bool, /) -> int:  # noqa: FBT001 - as in C
        """Charge a body, or what is kept of it; returns how many bytes of it may be kept."""

    def release(self, reader: "Records", /) -> None:
        """There is no body any more."""


def _keep(owner: "weakref.ref[Records]", bodies: Bodies, size: int, *, again: bool) -> int:
    """As walk.Keep has it; no strong reference, or only a garbage collection would end Records."""
    reader = owner()
    if reader is None:
        return size
    if size == 0:
        bodies.make_room(reader)
        return 0
    return bodies.hold(reader, size, again)


@final
class Records:
    """Iterate over one partition's record set, as a fetch response carries it, decoding on the way.

    Offsets below `offset` and from `end` on are left out, so are control batches and, with
    `aborted` (pairs of producer id and first offset, as the broker sent them), records of aborted
    transactions. A last batch that came only in part ends the iteration quietly. Damage raises
    CorruptRecords, after every record before it was handed out, and again whenever asked again,
    until `skip_corrupt()`.

    The buffer is held until the iteration ends, or `close()`; records never refer to it.
    Decompressed bodies are charged to `bodies`, which may evict them between two records.
    """

    __slots__ = (
        "__weakref__", "_bodies", "_error", "_found", "_reading", "_view", "_walk", "partition",
        "size", "topic",
    )  # fmt: skip

    def __init__(
        self,
        data: "Buffer",
        *,
        topic: str,
        partition: int,
        offset: int = 0,
        end: int = MOST,
        aborted: Iterable[tuple[int, int]] | None = None,
        check_crc: bool = True,
        max_inflated: int = 64 * 2**20,
        max_batch: int = 128 * 2**20,
        bodies: "Bodies | None" = None,
    ) -> None:
        if offset < 0 or max_inflated < 0 or max_batch < 0:
            raise ValueError("offset, max_inflated and max_batch must not be negative")
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        self.topic = topic
        self.partition = partition
        limits = Limits(check_crc, max_inflated, max_batch, end)
        keep = keep_all if bodies is None else partial(_keep, weakref.ref(self), bodies)
        self._walk = Walk(offset, limits, None if aborted is None else Aborted(aborted), keep)
        self._bodies = bodies
        self._reading = False
        self._view: memoryview | None = memoryview(data).cast("B")
        self._found: Iterator[Record] = self._walk.records(self._view, topic, partition)
        self._error: CorruptRecords | None = None
        self.size = len(self._view)

    def __iter__(self) -> "Self":
        return self

    def __next__(self) -> Record:
        if self._error is not None:
            raise self._error
        self._reading = True
        try:
            return next(self._found)
        except StopIteration:
            self.close()
            raise
        except Damage as found:
            damage = Damage(found.reason, found.resume)
        except BaseException:  # not the fault of the bytes: whoever asks again gets them
            self._walk.back()
            assert self._view is not None
            self._found = self._walk.records(self._view, self.topic, self.partition)
            raise
        finally:
            self._reading = False
        # raised out here, so that it does not carry the frames that hold the buffer
        self._error = self._corrupt(damage)
        raise self._error

    @property
    def next_offset(self) -> int:
        """Where the next fetch must start, after what was handed out so far."""
        return self._walk.next_offset

    @property
    def worked(self) -> int:
        """Bytes decompressed since it was last set to 0."""
        return self._walk.body.worked

    @worked.setter
    def worked(self, value: int) -> None:
        self._walk.body.worked = value

    @property
    def incomplete(self) -> int:
        """How many bytes the first batch needs, when not even that one came whole; else 0."""
        return self._walk.incomplete

    @property
    def leader_epoch(self) -> int:
        """Of the last batch seen; -1 when none had one."""
        return self._walk.leader_epoch

    def __repr__(self) -> str:
        state = ", corrupt" if self._error else "" if self._view is not None else ", finished"
        return (
            f"<Records of {self.topic}[{self.partition}]: {self.size} bytes, "
            f"next offset {self.next_offset}{state}>"
        )

    def close(self) -> None:
        """End the iteration and let go of the buffer. Harmless when done before."""
        self._found, self._error = iter(()), None  # damage does not matter any more either
        view, self._view = self._view, None
        if view is not None:
            view.release()
        if self._bodies is not None:
            self._bodies.release(self)

    def evict(self) -> bool:
        """Free the decompressed body; the next record decompresses it again. False if in use."""
        if self._reading or self._view is None or not self._walk.body.is_held:
            return False
        self._walk.back()
        self._found = self._walk.records(self._view, self.topic, self.partition)
        return True

    def skip_corrupt(self) -> int:
        """Go on behind the corrupt place; returns the offset where that is.

        Raises the CorruptRecords again when nobody can know where it ends (its `resume` is None).
        """
        if self._error is not None:
            if self._error.resume is None:
                raise self._error
            self._walk.next_offset = self._error.resume
            self._error = None
            if self._view is not None:
                self._found = self._walk.records(self._view, self.topic, self.partition)
        return self.next_offset

    def take_columns(
        self, wanted: int, max_rows: int, max_bytes: int, scale: int, /
    ) -> Table | None:
        """The next records as the buffers of Arrow arrays, or None; for the module `columns`."""
        most = MOST if wanted & AS_VIEWS else max_bytes
        rows = self._gather(max_rows, (most, most, max_bytes))
        return table_of(rows, wanted, scale) if rows else None

    def _gather(self, max_rows: int, most: tuple[int, int, int]) -> list[Record]:
        """Up to so many records, and so many bytes of keys, values and headers.

        Nor more inflated bodies than one could be: each may be as large as is allowed, and a fetch
        holds thousands.
        """
        rows: list[Record] = []
        used: tuple[int, ...] = (0, 0, 0)
        self._walk.body.inflated = 0
        while len(rows) < max_rows:
            before = self.next_offset
            try:
                row = next(self)
            except StopIteration:
                break
            except CorruptRecords:
                if rows:
                    break  # it is kept, and raised when these have been taken
                raise
            used = tuple(map(add, used, sizes_of(row)))
            if rows and (self._walk.body.is_enough or any(map(gt, used, most))):
                self._found = self._again(row, self.next_offset, self._found)
                self._walk.next_offset = before
                break
            rows.append(row)
        return rows

    def _again(self, row: Record, after: int, rest: Iterator[Record]) -> Iterator[Record]:
        """Hand out a record that was read too early, and then the rest."""
        walk = self._walk
        redo = walk.body.unread()

        def replayed() -> Iterator[Record]:
            walk.next_offset = after
            redo()
            yield row
            yield from rest

        return replayed()

    def _corrupt(self, damage: Damage) -> CorruptRecords:
        offset = max(self._walk.stand, self.next_offset)
        resume = damage.resume
        if resume is None:
            self.close()
        else:
            resume = max(resume, self.next_offset)
        return CorruptRecords(self.topic, self.partition, offset, damage.reason, resume)
