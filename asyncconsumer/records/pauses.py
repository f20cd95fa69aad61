"""Where a reader stops for the event loop, and how it goes on."""

from collections.abc import Awaitable, Iterator
from enum import IntEnum
from types import coroutine
from typing import Any, Final, Protocol

from asyncconsumer.records.compression import AT_ONCE

RECORDS_BETWEEN_PAUSES: Final = 8192
WORK_BETWEEN_PAUSES: Final = AT_ONCE
"""Bytes decompressed, after which the event loop runs before more is decompressed."""
TABLE_BETWEEN_PAUSES: Final = 4 * AT_ONCE
"""Bytes of one column that are copied to a table before the event loop runs."""


class Pause(IntEnum):
    """Why cooperative Records stopped before their end."""

    NONE = 0
    FOR_LOOP = 1
    """Much was decompressed: the event loop should run."""
    FOR_BODY = 2
    """The next body takes long to decompress: `prepare()` does it, in another thread."""


NOT_PAUSED: Final = Pause.NONE  # members of an enum are slow to look up


class Preparer(Protocol):
    """Has large bodies decompressed off the event loop; `asyncconsumer.buffer.body_cache` does."""

    def prepare(self, reader: Any, /) -> Awaitable[object]:  # noqa: ANN401 - Records of any decoder
        """Call `reader.prepare()` in another thread."""


class Pausing(Protocol):
    """As much of Records as pauses need."""

    cooperative: bool
    worked: int

    @property
    def paused(self) -> int:
        """A Pause."""

    @property
    def bodies(self) -> Preparer | None:
        """What decompressed bodies are charged to."""

    def open_next(self) -> bool:
        """Have the next record in memory; False at a pause."""


@coroutine
def pause() -> Iterator[None]:
    """Let the event loop run, as `asyncio.sleep(0)` does."""
    yield


async def open_next(records: Pausing) -> None:
    """Return when the next record is in memory, or there is none, without blocking the event loop.

    From then on the records are cooperative: an iteration over them ends where it pauses. While
    `records.paused` is true, more follows after the next call. Cancelling it loses nothing.
    """
    records.cooperative = True
    if records.worked >= WORK_BETWEEN_PAUSES:
        records.worked = 0
        await pause()
    while not records.open_next():
        await resume(records)


async def resume(records: Pausing) -> None:
    """Return when records that paused can be read on."""
    if records.paused == Pause.FOR_BODY and records.bodies is not None:
        await records.bodies.prepare(records)
    else:
        records.worked = 0
        await pause()
