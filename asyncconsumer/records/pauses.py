"""The pauses of a reader of records, in which the event loop runs."""

from collections.abc import Awaitable, Iterator
from enum import IntEnum
from types import coroutine
from typing import Any, Final, Protocol

from asyncconsumer.records.compression import AT_ONCE

RECORDS_BETWEEN_PAUSES: Final = 8192
WORK_BETWEEN_PAUSES: Final = AT_ONCE
"""Bytes that are decompressed before the event loop runs again."""
TABLE_BETWEEN_PAUSES: Final = 4 * AT_ONCE
"""Bytes of one column that are copied to a table before the event loop runs again."""


class Pause(IntEnum):
    """The reason why an iteration over `Records` has paused before their end."""

    NONE = 0
    FOR_LOOP = 1
    """Much was decompressed, so other tasks should run first."""
    FOR_BODY = 2
    """The next body takes long to decompress, so a thread must call `prepare()`."""


NOT_PAUSED: Final = Pause.NONE  # members of an enum are slow to look up


class Preparer(Protocol):
    """An object that decompresses large bodies in threads. `buffer.body_cache` implements it."""

    def prepare(self, reader: Any, /) -> Awaitable[object]:  # noqa: ANN401 - Records of any decoder
        """Call `reader.prepare()` in another thread.

        Return an awaitable that ends with the call.
        """


class Pausing(Protocol):
    """The part of the interface of `Records` that this module uses."""

    cooperative: bool
    worked: int

    @property
    def paused(self) -> int:
        """The `Pause` that ended the iteration."""

    @property
    def bodies(self) -> Preparer | None:
        """The object that decompresses large bodies in threads, or None."""

    def open_next(self) -> bool:
        """Load the next record, if there is one. Return False only if a pause came before it.

        At the end of the records the result is True.
        """


@coroutine
def pause() -> Iterator[None]:
    """Let the event loop run once, as `asyncio.sleep(0)` does."""
    yield


async def open_next(records: Pausing) -> None:
    """Wait until the next record is in memory or the records end, without blocking the event loop.

    After this call, an iteration over the records ends at each pause. If `records.paused` is true
    then, call this function again to continue. Cancellation loses no record.
    """
    records.cooperative = True
    if records.worked >= WORK_BETWEEN_PAUSES:
        records.worked = 0
        await pause()
    while not records.open_next():
        await resume(records)


async def resume(records: Pausing) -> None:
    """Wait until paused records can be read again.

    If a large body caused the pause, another thread decompresses it. Otherwise the event loop runs
    once.
    """
    if records.paused == Pause.FOR_BODY and records.bodies is not None:
        await records.bodies.prepare(records)
    else:
        records.worked = 0
        await pause()
