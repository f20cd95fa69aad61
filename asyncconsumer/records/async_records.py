"""An async iterator over the records of successive record sets, in pure Python."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from inspect import isawaitable
from math import inf
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast, final

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records.pauses import RECORDS_BETWEEN_PAUSES, pause, resume
from asyncconsumer.records.record import Record
from asyncconsumer.records.record_set import Records

if TYPE_CHECKING:
    from typing import Self

    from asyncconsumer.records.message import MessageBuilder


T = TypeVar("T")

_RECORDS_BETWEEN_PAUSES: Final = RECORDS_BETWEEN_PAUSES // 8  # slower than in C


_CONCURRENT: Final = (
    "another task already waits for the next record of this stream. Read it from one task, "
    "or use `streams(n)`"
)

_PendingKind = Literal["retry", "awaitable", "failed", "message", "skip"]


class _Pending(NamedTuple):
    """A record that was put back into the record set `of`, because its message is not complete.

    When the record is read again, `kind` says how to continue: make the message again, await it,
    raise an error, return the message, or skip the record.
    """

    of: Records
    record: Record  # the record as the interceptors, which are called once, returned it
    kind: _PendingKind = "retry"
    value: Any = None  # the awaitable, the error or the message


class _ItemError(Exception):
    """A wrapper for an exception that a deserializer raised.

    The wrapper distinguishes it from an exception of the record decoder.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _wall() -> float:
    return datetime.now(UTC).timestamp()


@final
class AsyncRecords:
    """An async iterator over the records of successive record sets.

    `refill` is a coroutine function that returns the next `Records`, or None at the end. The
    iterator awaits it after the last record of the current `Records`. Most other records are
    returned without a wait. While `refill` runs, `current` is still the previous `Records`, so
    `refill` can read its `next_offset`.

    If `refill()` is cancelled or fails, no record is lost, because the next step calls it again. A
    `refill` that never waits should call `sleep(0)` now and then, so that other tasks run. Within
    one record set, the iterator yields to the event loop after many records or much decompression.
    """

    __slots__ = (
        "__weakref__",
        "_builder",
        "_clock",
        "_deadline",
        "_ended",
        "_handed_out",
        "_pending",
        "_refill",
        "_waiting",
        "_wall_deadline",
        "current",
        "in_flight",
        "last_offset",
        "recover",
        "remaining",
        "unreadable",
    )

    def __init__(
        self,
        refill: Callable[[], Awaitable[Records | None]],
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not callable(refill):
            raise TypeError("refill must be a coroutine function")
        self._refill = refill
        self._clock = clock
        self._waiting = False
        self._ended = False
        self._handed_out = 0  # records since the event loop could last run
        self.current: Records | None = None
        """The current `Records`, also during `refill`; None before the first and at the end."""
        self.last_offset = -1
        """Offset of the last record returned, which may not be processed yet; or -1."""
        self.in_flight = False
        """Whether a record was returned and the next one has not been requested."""
        self.recover: Callable[[Exception], bool] | None = None
        """Called with an error of the current records; if it returns true, `refill` is called."""
        self._builder: MessageBuilder | None = None
        self.unreadable: Callable[[Exception], Awaitable[object] | None] | None = None
        """Called with the error of an unreadable record or batch.

        It returns None to raise the error, or an awaitable to await before the record is skipped.
        """
        self.remaining = -1
        """Number of records that may still be returned; -1 means no limit.

        At 0, `refill` is called for each request.
        """
        self._pending: _Pending | None = None
        self._deadline = self._wall_deadline = inf

    @property
    def builder(self) -> "MessageBuilder | None":
        """The function that makes an item of each record, or None to return the records."""
        return self._builder

    @builder.setter
    def builder(self, builder: "MessageBuilder | None") -> None:
        self._builder, self._pending = builder, None

    @property
    def is_waiting(self) -> bool:
        """Whether a task waits for the next item."""
        return self._waiting

    @property
    def deadline(self) -> float:
        """The loop time after which `refill` must be called before another record is returned.

        If the process is suspended between two records, it may lose its partitions meanwhile. The
        deadline prevents the delivery of their other records. `refill` may return the same
        `Records` again. The wall clock is compared as well, because the monotonic clock does not
        count suspended time.
        """
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline
        self._wall_deadline = _wall() + (deadline - time.monotonic())

    def _is_late(self) -> bool:
        if self._deadline == inf:
            return False
        if self._clock is not None:
            return self._clock() >= self._deadline
        return time.monotonic() >= self._deadline or _wall() >= self._wall_deadline

    def __aiter__(self) -> "Self":
        return self

    async def __anext__(self) -> Record:  # or an item that the builder returns
        if self._waiting:
            raise RuntimeError(_CONCURRENT)
        self.in_flight = False
        is_new = False  # records that `refill` has just returned are never late
        # after any other wait the records may be late, because the partition may be lost
        waited = False
        while not self._ended:
            late = not is_new and (self._is_late() or (waited and self._deadline < inf))
            is_new = waited = False
            if self._handed_out >= _RECORDS_BETWEEN_PAUSES and not late:
                await self._wait_for(pause())
                continue
            item = self._read(late=late)
            if isinstance(item, CoroutineType):
                await item
                waited = True
            elif item is not None:
                return cast("Record", item)
            else:
                self._take_records(await self._wait_for(self._refill()))
                is_new = True
        raise StopAsyncIteration

    def _read(self, *, late: bool) -> Any:  # noqa: ANN401 - what the builder returns
        """Return the next item, or a coroutine that the caller must await before the next call.

        Return None if `refill` must be called. With `late`, the deadline has passed.
        """
        current = self.current
        if late or self.remaining == 0:
            self._skip_pending()
            return None
        if current is None:
            return None
        try:
            item = next(self._items(current), None)
        except _ItemError as failure:
            return self._apply_policy(failure.error, item=True)
        except Exception as error:  # noqa: BLE001 - raised again if nothing can be done
            if self.recover is not None and self.recover(error):
                return None
            return self._apply_policy(error, item=False)
        if item is None and current.paused:
            return self._wait_for(resume(current))
        return self._await_message(item) if isawaitable(item) else item

    def _items(self, current: Records) -> Iterator[Any]:
        """Yield the next item of the record set `current`, or nothing at its end.

        If the message of a record must be awaited, put the record back and yield the awaitable.
        """
        before, builder = current.next_offset, self._builder
        for record in current:
            item: Any = record
            if builder is not None:
                pending, self._pending = self._pending, None
                if pending is not None and (
                    pending.of is not current or pending.record.offset != record.offset
                ):
                    pending = None
                if pending is not None and pending.kind == "skip":
                    self._handed_out += 1
                    before = current.next_offset
                    continue
                try:
                    item = self._build(builder, current, record, pending)
                except BaseException as error:
                    current.unread(record, before)
                    if self._pending is None:  # the error is that of an interceptor
                        raise
                    raise _ItemError(error) from error
                if isawaitable(item):
                    current.unread(record, before)
                    yield item
                    return
                self._pending = None
            self.last_offset = record.offset
            self.in_flight = True
            self._handed_out += 1
            if self.remaining > 0:
                self.remaining -= 1
            yield item
            return

    def _build(
        self,
        builder: "MessageBuilder",
        current: Records,
        record: Record,
        pending: _Pending | None,
    ) -> Any:  # noqa: ANN401 - a message, or an awaitable
        if pending is None:
            pending = _Pending(current, builder.intercept(record))
        if self._builder is builder:  # a new builder starts with the original record
            self._pending = pending._replace(kind="retry", value=None)
        if pending.kind == "failed":
            raise pending.value
        if pending.kind in ("message", "awaitable"):
            return pending.value
        return builder.build(pending.record)

    def _skip_pending(self) -> None:
        """Skip the record that was put back, if the poison policy has decided to skip it.

        Call this before `refill`. Otherwise the record would be fetched and handled again.
        """
        pending, current = self._pending, self.current
        if pending is None or pending.kind != "skip" or pending.of is not current:
            return
        before = pending.of.next_offset
        with suppress(CorruptRecords):  # raised again by the next request
            for record in pending.of:
                self._pending = None
                if record.offset != pending.record.offset:
                    pending.of.unread(record, before)
                return

    async def _await_message(self, awaitable: Awaitable[object]) -> None:
        try:
            message = await self._wait_for(awaitable)
        except BaseException as error:  # noqa: BLE001 - raised again if nothing can be done
            await self._apply_policy(error, item=True)
        else:
            self._set_pending("message", message)

    async def _apply_policy(self, error: BaseException, *, item: bool) -> None:
        """Have the poison policy handle an unreadable record, and wait until that is done.

        If there is no policy, raise the error. `item` is True if a deserializer raised the error,
        and False if the decoder raised it.
        """
        if item and (not isinstance(error, Exception) or getattr(error, "retriable", False)):
            raise error
        if self.unreadable is not None and isinstance(error, Exception):
            awaitable = self.unreadable(error)
            if awaitable is not None:
                await self._wait_for(awaitable)
                if item:
                    self._set_pending("skip")
                return
        if item:
            self._set_pending("skip")  # the next request skips the record
        raise error

    def _set_pending(self, kind: _PendingKind, value: object = None) -> None:
        if self._pending is not None:
            self._pending = self._pending._replace(kind=kind, value=value)

    def take(self, items: list[Any], limit: int, /) -> int:
        """Append up to `limit` items to `items`. Return the number of appended items.

        Stop before a record that cannot be decoded or whose message must be awaited. The iteration
        continues with that record.
        """
        if self._waiting:
            raise RuntimeError(_CONCURRENT)
        self.in_flight = False
        first, taken = self.current, 0
        while taken < limit and self.current is first and first is not None and self._may_take():
            try:
                item = next(self._items(first), None)
            except CorruptRecords:
                break  # raised again by the next request
            except _ItemError as failure:
                error = failure.error
                if isinstance(error, Exception):
                    self._set_pending("failed", error)
                    break
                raise error from error.__cause__
            if item is None:
                break
            if isawaitable(item):
                self._set_pending("awaitable", item)
                break
            items.append(item)
            taken += 1
        return taken

    def _may_take(self) -> bool:
        many = self._handed_out >= _RECORDS_BETWEEN_PAUSES
        return not (self._ended or many or self.remaining == 0 or self._is_late())

    async def _wait_for(self, awaitable: Awaitable[T]) -> T:
        self._waiting = True
        self._handed_out = 0
        try:
            return await awaitable
        finally:
            self._waiting = False

    def _take_records(self, answer: Records | None) -> None:
        if answer is not None and not isinstance(answer, Records):
            raise TypeError(f"refill() must return Records or None, not {type(answer).__name__}")
        if self._pending is not None and self._pending.of is not answer:
            self._pending = None
        self.current = answer
        self._ended = answer is None
        if answer is not None:
            answer.cooperative = True
