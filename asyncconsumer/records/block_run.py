"""The calls of a function with the records of a block, one after the other, in pure Python."""

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from asyncconsumer.records.record import Record
from asyncconsumer.records.record_block import RecordBlock

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _now() -> float:
    """Return the system's monotonic time, which also advances while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


@dataclass(slots=True)
class _Times:
    """The clock of a `BlockRun`, its start time, and the start and end times of its last call."""

    now: Callable[[], float]
    began: float = 0.0
    last_began: float = 0.0
    ended: float = 0.0


@final
class BlockRun:
    """An awaitable that calls a function with records of a block, one after the other (a run).

    Each result is awaited before the next call, and `block.index` is then increased. If the key of
    a record is in `busy`, `postpone` is called instead, and has to move `block.index` past the
    record.

    The run ends

    - at the end of the block, or after `limit` records,
    - after a call that ends `seconds` or more after the start of the run,
    - after a call after which `cancelling` returns a true value,
    - after a call during which other code moved `block.index`; then `taken` is True,
    - with an error of a call. `block.index` is then still at its record.

    `on_result` is called with each result that is not None. It may move `block.index` past the
    record, and then returns a true value. The run continues after that record.
    """

    __slots__ = (
        "_block",
        "_busy",
        "_call",
        "_cancelling",
        "_is_used",
        "_limit",
        "_on_result",
        "_postpone",
        "_seconds",
        "_times",
        "calls",
        "record",
        "taken",
    )

    def __init__(
        self,
        block: RecordBlock,
        call: Callable[[Record], Awaitable[Any]],
        limit: int,
        seconds: float,
        *,
        busy: Mapping[Any, Any],
        postpone: Callable[[], object],
        on_result: Callable[[Any], object],
        cancelling: Callable[[], object],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._block = block
        self._call = call
        self._limit = limit
        self._seconds = seconds
        self._busy = busy
        self._postpone = postpone
        self._on_result = on_result
        self._cancelling = cancelling
        self._times = _Times(clock or _now)
        self._is_used = False
        self.calls = 0  # calls that were begun
        self.record: Record | None = None  # the record of the last call
        self.taken = False  # other code moved `block.index` during the last call

    @property
    def seconds_before_last(self) -> float:
        """The seconds that all calls but the last have taken."""
        return self._times.last_began - self._times.began

    @property
    def seconds_of_last(self) -> float:
        """The seconds that the last call has taken."""
        return self._times.ended - self._times.last_began

    def __await__(self) -> Generator[Any, Any, None]:
        if self._is_used:
            raise RuntimeError("cannot reuse an awaited BlockRun")
        self._is_used = True
        return self._run().__await__()

    async def _run(self) -> None:
        block, times = self._block, self._times
        times.began = times.last_began = times.ended = times.now()
        try:
            while (record := self._next()) is not None:
                index = block.index
                self.record = record
                self._limit -= 1
                self.calls += 1
                times.last_began = times.ended
                result = await self._call(record)
                passed = result is not None and self._on_result(result)
                self.taken = not passed and block.index != index
                times.ended = times.now()
                if self.taken:
                    return
                if not passed:
                    block.index += 1
                if times.ended >= times.began + self._seconds or self._cancelling():
                    return
        except BaseException:
            times.ended = times.now()
            raise

    def _next(self) -> Record | None:
        """Return the next record whose key is not busy.

        Call `postpone` for each record before it. Return None at the end of the block or of the
        limit.
        """
        block = self._block
        while self._limit > 0 and block.index < len(block.records):
            record = block.records[block.index]
            if not self._busy or record.key not in self._busy:
                return record
            before = block.index
            self._postpone()
            self._limit -= 1
            if block.index <= before:
                raise RuntimeError("postpone() did not pass over the record")
        return None
