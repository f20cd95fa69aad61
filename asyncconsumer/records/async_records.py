"""The async iterator over record sets, in pure Python."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, final

from asyncconsumer.records.pauses import NOT_PAUSED, RECORDS_BETWEEN_PAUSES, pause, resume
from asyncconsumer.records.record import Record
from asyncconsumer.records.record_set import Records

if TYPE_CHECKING:
    from typing import Self


T = TypeVar("T")

_RECORDS_BETWEEN_PAUSES: Final = RECORDS_BETWEEN_PAUSES // 8  # slower than in C


def _wall() -> float:
    return datetime.now(UTC).timestamp()


@final
class AsyncRecords:
    """An async iterator over the records of successive record sets.

    It awaits `refill()` once for each record set; single records mostly need no await. `refill` is
    a coroutine function that returns the next `Records`, or None at the end. It is called when the
    current `Records` have been read to the end. `current` still is that object during the call, so
    `refill` can see how far the user has read.

    A cancelled or failed `refill()` loses nothing; the next step calls it again. A `refill` that
    never waits should `sleep(0)` now and then, so that other tasks run. The iterator also lets the
    event loop run after many records, or much decompression, of one record set.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_deadline",
        "_ended",
        "_handed_out",
        "_refill",
        "_waiting",
        "_wall_deadline",
        "current",
        "in_hand",
        "last_offset",
        "recover",
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
        """Offset of the last record returned, which may still be in processing; or -1."""
        self.in_hand = False
        """Whether a record was returned and the next one has not been asked for."""
        self.recover: Callable[[Exception], bool] | None = None
        """Called with an error of the current records; if it returns true, `refill` is called."""
        self._deadline = self._wall_deadline = inf

    @property
    def deadline(self) -> float:
        """The time after which `refill` is called before another record is returned.

        `refill` may return the same `Records` again. So a process that was suspended within a
        record set does not deliver records of partitions that it has lost meanwhile. The wall
        clock is compared as well, because the monotonic clock does not count suspended time.
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

    async def __anext__(self) -> Record:
        if self._waiting:
            raise RuntimeError("another task already waits for the next record")
        self.in_hand = False
        late = self._is_late()
        while not self._ended:
            if self._handed_out >= _RECORDS_BETWEEN_PAUSES and not late:
                await self._wait_for(pause())
                late = self._is_late()
                continue
            paused = NOT_PAUSED
            if self.current is not None and not late:
                try:
                    for record in self.current:
                        self.last_offset = record.offset
                        self.in_hand = True
                        self._handed_out += 1
                        return record
                except Exception as error:
                    if self.recover is None or not self.recover(error):
                        raise
                else:
                    paused = self.current.paused
            if paused and self.current is not None:
                await self._wait_for(resume(self.current))
                late = self._is_late()
                continue
            self._take(await self._wait_for(self._refill()))
            late = False  # `refill` has just been called, so its records may be returned
        raise StopAsyncIteration

    async def _wait_for(self, awaitable: Awaitable[T]) -> T:
        self._waiting = True
        self._handed_out = 0
        try:
            return await awaitable
        finally:
            self._waiting = False

    def _take(self, answer: Records | None) -> None:
        if answer is not None and not isinstance(answer, Records):
            raise TypeError(f"refill() must give Records or None, not {type(answer).__name__}")
        self.current = answer
        self._ended = answer is None
        if answer is not None:
            answer.cooperative = True
