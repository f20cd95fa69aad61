"""The decompression of large record batches in a thread, one at a time."""

import asyncio
import threading
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar


class Preparable(Protocol):
    """A decoder of records that has a large record batch to decompress."""

    def prepare(self) -> None:
        """Decompress the next record batch."""


R = TypeVar("R", bound=Preparable)


class _Job(NamedTuple):
    reader: Preparable
    done: asyncio.Future[None]


class Preparing:
    """A queue that decompresses one record batch at a time, in a thread.

    The bytes of a batch count against the consumer's memory limit only after the decompression. So
    at most one decompressed batch is not counted.

    Each batch gets a new thread, because starting it takes little of the time of a decompression.
    The thread is not a daemon: it ends soon, and interpreter shutdown must not stop a codec.
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
        # added first, so it is called before the tasks that wait resume and start the next job
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
