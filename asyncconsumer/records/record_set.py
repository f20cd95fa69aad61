"""One partition's record set as an iterator, in pure Python."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import add, gt
from typing import TYPE_CHECKING, Final, Protocol, final

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records.aborted import Aborted
from asyncconsumer.records.arrow_buffers import AS_VIEWS, Table, sizes_of, table_of
from asyncconsumer.records.body import keep_all
from asyncconsumer.records.byte_reader import MOST, DecodeError
from asyncconsumer.records.compression import TooLarge
from asyncconsumer.records.pauses import (
    NOT_PAUSED,
    RECORDS_BETWEEN_PAUSES,
    TABLE_BETWEEN_PAUSES,
    WORK_BETWEEN_PAUSES,
    Pause,
    Preparer,
)
from asyncconsumer.records.record import Record
from asyncconsumer.records.record_set_cursor import DecodeLimits, RecordSetCursor
from asyncconsumer.records.turns import Turn

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer


_WORK_OF_A_ROW: Final = 8 * WORK_BETWEEN_PAUSES // RECORDS_BETWEEN_PAUSES  # in a table


class Bodies(Preparer, Protocol):
    """What decompressed bodies are charged to; `asyncconsumer.buffer.body_cache` has it."""

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

    `cooperative` records end where the event loop should run. Then `paused` is true, and more
    follows after `pauses.open_next`. It calls `prepare` in another thread for large bodies.
    """

    __slots__ = (
        "__weakref__", "_ahead", "_cooperative", "_error", "_found", "_turn", "_view", "_walk",
        "bodies", "partition", "paused", "size", "topic",
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
        limits = DecodeLimits(check_crc, max_inflated, max_batch, end)
        keep = keep_all if bodies is None else partial(_keep, weakref.ref(self), bodies)
        self._walk = RecordSetCursor(
            offset, limits, None if aborted is None else Aborted(aborted), keep
        )
        self.bodies = bodies
        self.paused = NOT_PAUSED
        """Whether more follows, though the iteration has ended, and what for."""
        self._cooperative = False
        self._turn = Turn()
        self._ahead: Callable[[], Record] | None = None  # hands out what was read and put back
        self._view: memoryview | None = memoryview(data).cast("B")
        self._found: Iterator[Record | None] = self._walk.records(self._view, topic, partition)
        self._error: CorruptRecords | None = None
        self.size = len(self._view)

    def __iter__(self) -> "Self":
        return self

    def __next__(self) -> Record:
        lock = self._turn.lock
        if not lock.acquire(False):  # noqa: FBT003 - a name costs time for each record
            self._await_body()
            raise StopIteration
        try:
            return self._next()
        finally:
            lock.release()

    def _next(self) -> Record:
        self.paused = NOT_PAUSED
        if self._ahead is not None:
            return self._ahead()
        if self._error is not None:
            raise self._error
        try:
            record = next(self._found)
        except StopIteration:
            self._close()
            raise
        except DecodeError as found:
            damage = DecodeError(found.reason, found.resume)
        except TooLarge:
            self._back()
            self.paused = Pause.FOR_BODY
            raise StopIteration from None
        except BaseException:  # not the fault of the bytes: whoever asks again gets them
            self._back()
            raise
        else:
            if record is None:
                self.paused = Pause.FOR_LOOP
                raise StopIteration
            return record
        # raised out here, so that it does not carry the frames that hold the buffer
        self._error = self._corrupt(damage)
        raise self._error

    def _back(self) -> None:
        """Read the entry in hand again, from where it was left."""
        assert self._view is not None
        self._walk.back()
        self._ahead = None
        self._found = self._walk.records(self._view, self.topic, self.partition)

    # --- pauses ----------------------------------------------------------------------------------

    @property
    def cooperative(self) -> bool:
        """Whether the iteration ends where the event loop should run; then `paused` says so."""
        return self._cooperative

    @cooperative.setter
    def cooperative(self, cooperative: bool) -> None:
        self._cooperative = cooperative
        if not self._turn.is_preparing:
            self._allow_pauses()

    def _allow_pauses(self) -> None:
        allowed = self._cooperative
        self._walk.allow_pauses(after_work=allowed, for_bodies=allowed and self.bodies is not None)

    def _await_body(self) -> None:
        """Pause until `prepare` has returned; raise if something else reads."""
        self.paused = Pause.NONE
        if not (self._turn.is_preparing and self._cooperative):
            self._turn.refuse()
        if not self._turn.is_closing:
            self.paused = Pause.FOR_BODY

    def open_next(self) -> bool:
        """Have the next record in memory, if there is one; False if it paused before that."""
        if not self._turn.take():
            self._await_body()
            return not self.paused
        try:
            self._open_next()
        finally:
            self._turn.give_back()
        return not self.paused

    def prepare(self) -> None:
        """Do the same however long it takes; meant for a thread. `close` ends it afterwards."""
        self._turn.prepare(self._walk.next_offset)
        self._walk.allow_pauses(after_work=False, for_bodies=False)
        try:
            self._open_next()
        finally:
            self._allow_pauses()
            self.worked = 0  # not by the event loop
            self._turn.end_prepare()
            if self._turn.is_closing:
                self.close()

    def _open_next(self) -> None:
        """Read the next record, and put it back. Damage is met by who reads it."""
        before = self._walk.next_offset
        try:
            row = self._next()
        except (StopIteration, CorruptRecords):
            return
        self._put_back(row, before)

    def _put_back(self, row: Record, before: int) -> None:
        """Have a record that was read too early be the next again; the position was `before`."""
        walk = self._walk
        after, redo = walk.next_offset, walk.body.unread()

        def hand_out() -> Record:
            self._ahead = None
            walk.next_offset = after
            redo()
            return row

        walk.next_offset = before
        self._ahead = hand_out

    @property
    def next_offset(self) -> int:
        """Where the next fetch must start, after what was handed out so far."""
        position = self._turn.position
        return self._walk.next_offset if position is None else position

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
        """End the iteration and let go of the buffer. Harmless when done before.

        A thread that is in `prepare` needs the buffer, and lets go of it afterwards.
        """
        if self._turn.close():
            try:
                self._close()
            finally:
                self._turn.give_back()

    def _close(self) -> None:
        self._found, self._error = iter(()), None  # damage does not matter any more either
        self._ahead = None
        view, self._view = self._view, None
        if view is not None:
            view.release()
        if self.bodies is not None:
            self.bodies.release(self)

    def evict(self) -> bool:
        """Free the decompressed body; the next record decompresses it again. False if in use."""
        if not self._turn.take():
            return False
        try:
            if self._view is None or not self._walk.body.is_held:
                return False
            self._back()
        finally:
            self._turn.give_back()
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
        if self._cooperative:
            max_rows = min(max_rows, RECORDS_BETWEEN_PAUSES // 8)  # slower than in C
            max_bytes = min(max_bytes, TABLE_BETWEEN_PAUSES)
        most = MOST if wanted & AS_VIEWS else max_bytes
        if not self._turn.take():
            self._await_body()
            return None
        try:
            rows = self._gather(max_rows, (most, most, max_bytes))
        finally:
            self._turn.give_back()
        self.worked += len(rows) * _WORK_OF_A_ROW
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
            before = self._walk.next_offset
            try:
                row = self._next()
            except StopIteration:
                break
            except CorruptRecords:
                if rows:
                    break  # it is kept, and raised when these have been taken
                raise
            used = tuple(map(add, used, sizes_of(row)))
            if rows and (self._walk.body.is_enough or any(map(gt, used, most))):
                self._put_back(row, before)
                break
            rows.append(row)
        return rows

    def _corrupt(self, damage: DecodeError) -> CorruptRecords:
        offset = max(self._walk.stand, self.next_offset)
        resume = damage.resume
        if resume is None:
            self._close()
        else:
            resume = max(resume, self.next_offset)
        return CorruptRecords(self.topic, self.partition, offset, damage.reason, resume)
