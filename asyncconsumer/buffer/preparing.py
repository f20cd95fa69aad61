"""The decompression of large bodies in a thread, one at a time, while the event loop runs."""

import asyncio
import threading
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar


class Preparable(Protocol):
    """A reader of records that has a large body to decompress."""

    def prepare(self) -> None:
        """Decompress the next body."""


R = TypeVar("R", bound=Preparable)


class _Job(NamedTuple):
    reader: Preparable
    done: asyncio.Future[None]


class Preparing:
    """A queue that decompresses one body at a time.

    A body is charged to the budget only when its decompression is complete. So at most one body is
    in memory without being charged.

    Each body gets a new thread, whose start is short compared to the decompression. The thread is
    not a daemon: it ends soon, and interpreter shutdown must not stop a codec.
    """

    def __init__(self) -> None:
        self._job: _Job | None = None

    async def prepare(self, reader: R) -> R:
        """Call `reader.prepare()` in a thread. Return the reader.

        Cancelling the wait does not stop the thread. Another call for the same reader then waits
        for that thread.
        """
        loop = asyncio.get_running_loop()
        if getattr(loop, "virtual_time", False):  # simulations run without threads
            reader.prepare()
            return reader
        while self._job is not None and self._job.reader is not reader:
            await asyncio.wait((self._job.done,))
        if self._job is None:
            self._job = self._start(reader, loop)
        done = self._job.done
        await asyncio.wait((done,))
        done.result()
        return reader

    def _start(self, reader: Preparable, loop: asyncio.AbstractEventLoop) -> _Job:
        job = _Job(reader, loop.create_future())
        # the first callback, so that the next job may start when the waiting tasks resume
        job.done.add_done_callback(self._on_done)

        def settle(error: BaseException | None) -> None:
            if error is None:
                job.done.set_result(None)
            else:
                job.done.set_exception(error)

        def run() -> None:
            failure: BaseException | None = None
            try:
                reader.prepare()
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                failure = error
            with suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(settle, failure)

        threading.Thread(target=run, name="asyncconsumer-decompress").start()
        return job

    def _on_done(self, done: asyncio.Future[None]) -> None:
        done.exception()  # mark the error as retrieved, because all waits may be cancelled
        self._job = None
