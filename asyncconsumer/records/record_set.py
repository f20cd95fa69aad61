"""An iterator over the record set of one partition, in pure Python."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import add, gt
from typing import TYPE_CHECKING, Final, Protocol, final

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records.aborted import Aborted
from asyncconsumer.records.arrow_buffers import AS_VIEWS, TableBuffers, sizes_of, table_of
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


_WORK_OF_A_ROW: Final = 8 * WORK_BETWEEN_PAUSES // RECORDS_BETWEEN_PAUSES  # bytes


class Bodies(Preparer, Protocol):
    """A budget for decompressed bodies, which may free them.

    `asyncconsumer.buffer.body_cache` implements it.
    """

    def make_room(self, reader: "Records", /) -> None:
        """Free bodies until the budget is within its limit, before `reader` decompresses one."""

    def hold(self, reader: "Records", size: int, again: bool, /) -> int:  # noqa: FBT001 - as in C
        """Charge `size` bytes of a body to the budget. Return how many of them `reader` may keep.

        `again` is true if the body was decompressed before and then freed.
        """

    def release(self, reader: "Records", /) -> None:
        """Release the bytes that `hold` charged for `reader`, because its body was freed."""


def _keep(owner: "weakref.ref[Records]", bodies: Bodies, size: int, *, again: bool) -> int:
    """Charge the body of a reader to `bodies`. A `partial` of this function is a `body.Keep`.

    `owner` is a weak reference to the reader. A strong one would form a reference cycle, which only
    the garbage collector frees.
    """
    reader = owner()
    if reader is None:
        return size
    if size == 0:
        bodies.make_room(reader)
        return 0
    return bodies.hold(reader, size, again)


@final
class Records:
    """An iterator over the record set of one partition, as a fetch response contains it.

    Records are decoded one by one. Records below `offset`, records from `end` on and control
    batches are skipped. `aborted` has pairs of producer id and first offset, as the broker sent
    them. With it, records of aborted transactions are skipped as well.

    An incomplete last batch ends the iteration without an error. A corrupt batch raises
    `CorruptRecords` after all records before it. Each further call raises it again, until
    `skip_corrupt()`.

    The buffer is held until the iteration ends or `close()` is called. Records never refer to it.
    Decompressed bodies are charged to `bodies`, which may free them between two records.

    With `cooperative`, the iteration ends whenever the event loop should run. Then `paused` is
    true, and the iteration can continue after `pauses.open_next`. That function calls `prepare` in
    another thread to decompress a large body.
    """

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_cooperative",
        "_error",
        "_turn",
        "_unread",
        "_view",
        "_walk",
        "bodies",
        "partition",
        "paused",
        "size",
        "topic",
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
        max_decompressed_bytes: int = 64 * 2**20,
        max_batch: int = 128 * 2**20,
        bodies: "Bodies | None" = None,
    ) -> None:
        if offset < 0 or max_decompressed_bytes < 0 or max_batch < 0:
            raise ValueError(
                "`offset`, `max_decompressed_bytes` and `max_batch` must not be negative"
            )
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        self.topic = topic
        self.partition = partition
        limits = DecodeLimits(check_crc, max_decompressed_bytes, max_batch, end)
        keep = keep_all if bodies is None else partial(_keep, weakref.ref(self), bodies)
        self._walk = RecordSetCursor(
            offset, limits, None if aborted is None else Aborted(aborted), keep
        )
        self.bodies = bodies
        self.paused = NOT_PAUSED
        """The reason why the iteration paused; `NOT_PAUSED` if it has not."""
        self._cooperative = False
        self._turn = Turn()
        self._ahead: Callable[[], Record] | None = None  # returns a record that was put back
        self._view: memoryview | None = memoryview(data).cast("B")
        self._unread: Iterator[Record | None] = self._walk.records(self._view, topic, partition)
        self._error: CorruptRecords | None = None
        self.size = len(self._view)

    def __iter__(self) -> "Self":
        return self

    def __next__(self) -> Record:
        lock = self._turn.lock
        if not lock.acquire(False):  # noqa: FBT003 - a keyword costs time for each record
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
            record = next(self._unread)
        except StopIteration:
            self._close()
            raise
        except DecodeError as error:
            damage = DecodeError(error.reason, error.resume)
        except TooLarge:
            self._back()
            self.paused = Pause.FOR_BODY
            raise StopIteration from None
        except BaseException:  # not caused by the bytes: the next call reads them again
            self._back()
            raise
        else:
            if record is None:
                self.paused = Pause.FOR_LOOP
                raise StopIteration
            return record
        # Raised outside of the handler: its traceback must not keep the buffer alive.
        self._error = self._corrupt(damage)
        raise self._error

    def _back(self) -> None:
        """Go back to the start of the current record batch, to read the rest of it again."""
        assert self._view is not None
        self._walk.back()
        self._ahead = None
        self._unread = self._walk.records(self._view, self.topic, self.partition)

    # --- pauses ----------------------------------------------------------------------------------

    @property
    def cooperative(self) -> bool:
        """Whether the iteration ends, with `paused` set, whenever the event loop should run."""
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
        """Set `paused` to FOR_BODY, because another thread executes `prepare`.

        If the other thread executes any other method, raise RuntimeError.
        """
        self.paused = Pause.NONE
        if not (self._turn.is_preparing and self._cooperative):
            self._turn.refuse()
        if not self._turn.is_closing:
            self.paused = Pause.FOR_BODY

    def open_next(self) -> bool:
        """Load the next record, if there is one. Return False if a pause is needed before it."""
        if not self._turn.take():
            self._await_body()
            return not self.paused
        try:
            self._open_next()
        finally:
            self._turn.give_back()
        return not self.paused

    def prepare(self) -> None:
        """Load the next record without pauses. Call this in a worker thread.

        If `close` is called meanwhile, the records are closed at the end of this call.
        """
        self._turn.prepare(self._walk.next_offset)
        self._walk.allow_pauses(after_work=False, for_bodies=False)
        try:
            self._open_next()
        finally:
            self._allow_pauses()
            self.worked = 0  # the event loop was not blocked
            self._turn.end_prepare()
            if self._turn.is_closing:
                self.close()

    def _open_next(self) -> None:
        """Read the next record into memory, and put it back, so that the iteration returns it next.

        An error is stored, and raised when the record is requested.
        """
        before = self._walk.next_offset
        try:
            row = self._next()
        except (StopIteration, CorruptRecords):
            return
        self._put_back(row, before)

    def unread(self, record: Record, before: int) -> None:
        """Let the iteration return the last returned record again.

        `before` is `next_offset` before it was returned. Closed records stay closed.
        """
        if self._view is None:
            self._walk.next_offset = before
        elif self._turn.take():
            try:
                self._put_back(record, before)
            finally:
                self._turn.give_back()

    def _put_back(self, row: Record, before: int) -> None:
        """Let the iteration return `row` again. `before` is `next_offset` before it was read."""
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
    def closed(self) -> bool:
        """Whether the iteration has ended, or `close` was called."""
        return self._view is None

    @property
    def next_offset(self) -> int:
        """The offset after the records returned so far, at which the next fetch must start."""
        position = self._turn.position
        return self._walk.next_offset if position is None else position

    @property
    def worked(self) -> int:
        """The number of bytes decompressed since this was last set to 0."""
        return self._walk.body.worked

    @worked.setter
    def worked(self, value: int) -> None:
        self._walk.body.worked = value

    @property
    def incomplete(self) -> int:
        """The size of the first record batch if the data ends within it, otherwise 0."""
        return self._walk.incomplete

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last record batch that was read, or -1 if there was none."""
        return self._walk.leader_epoch

    def __repr__(self) -> str:
        state = ", corrupt" if self._error else "" if self._view is not None else ", finished"
        return (
            f"<Records of {self.topic}[{self.partition}]: {self.size} bytes, "
            f"next offset {self.next_offset}{state}>"
        )

    def close(self) -> None:
        """End the iteration and release the buffer, unless both was done before.

        If a thread is in `prepare`, it still needs the buffer, and releases it when it is done.
        """
        if self._turn.close():
            try:
                self._close()
            finally:
                self._turn.give_back()

    def _close(self) -> None:
        self._unread, self._error = iter(()), None  # an error is dropped as well
        self._ahead = None
        view, self._view = self._view, None
        if view is not None:
            view.release()
        if self.bodies is not None:
            self.bodies.release(self)

    def evict(self) -> bool:
        """Free the decompressed body. Return False if there is none or if it is in use.

        The next read decompresses the body again.
        """
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
        """Continue after the corrupt data. Return the offset at which reading continues.

        If the end of the corrupt data is not known, raise the `CorruptRecords` again. Its `resume`
        is then None.
        """
        if self._error is not None:
            if self._error.resume is None:
                raise self._error
            self._walk.next_offset = self._error.resume
            self._error = None
            if self._view is not None:
                self._unread = self._walk.records(self._view, self.topic, self.partition)
        return self.next_offset

    def take_columns(
        self, flags: int, max_rows: int, max_bytes: int, scale: int, /
    ) -> TableBuffers | None:
        """Return the next records as buffers of Arrow arrays, or None if none can be read now.

        `records.arrow` uses this.
        """
        if self._cooperative:
            max_rows = min(max_rows, RECORDS_BETWEEN_PAUSES // 8)  # slower than in C
            max_bytes = min(max_bytes, TABLE_BETWEEN_PAUSES)
        column_limit = MOST if flags & AS_VIEWS else max_bytes
        if not self._turn.take():
            self._await_body()
            return None
        try:
            rows = self._gather(max_rows, (column_limit, column_limit, max_bytes))
        finally:
            self._turn.give_back()
        self.worked += len(rows) * _WORK_OF_A_ROW
        return table_of(rows, flags, scale) if rows else None

    def _gather(self, max_rows: int, limits: tuple[int, int, int]) -> list[Record]:
        """Return up to `max_rows` records with up to `limits` bytes of keys, values and headers.

        Reading also stops after bodies of `max_decompressed_bytes` in total were decompressed.
        Without that limit, each of the thousands of record batches of a fetch could add a body of
        that size.
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
                    break  # the next call raises it
                raise
            used = tuple(map(add, used, sizes_of(row)))
            if rows and (self._walk.body.is_enough or any(map(gt, used, limits))):
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
