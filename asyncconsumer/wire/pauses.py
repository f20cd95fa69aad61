"""When a reader that never waits lets the event loop run."""

from collections.abc import Iterator
from types import coroutine
from typing import Final, Protocol

RECORDS_BETWEEN_PAUSES: Final = 8192
WORK_BETWEEN_PAUSES: Final = 4 << 20
"""Bytes decompressed, after which the event loop runs before more is decompressed."""


class Worker(Protocol):
    """What counts the bytes that it decompresses."""

    worked: int


@coroutine
def pause() -> Iterator[None]:
    """Let the event loop run, as `asyncio.sleep(0)` does."""
    yield


async def pause_after_work(worker: Worker) -> None:
    """Let the event loop run if much was decompressed since it last did."""
    if worker.worked >= WORK_BETWEEN_PAUSES:
        worker.worked = 0
        await pause()
