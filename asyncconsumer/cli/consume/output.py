"""Writes to standard output in a thread, because the reader of a pipe may be slow or gone."""

import asyncio
import os
import queue
import select
import threading
from types import TracebackType
from typing import Final, NamedTuple, Self

_GRACE: Final = 5.0  # seconds for what is still to be written at the end


class _OutputJob(NamedTuple):
    data: bytes
    done: asyncio.Future[OSError | None]


class Output:
    """An ordered, unbuffered writer that reports when each write is finished.

    A write may block for any time, for example in a pipe to `less`. On the event loop that would
    stop heartbeats. The thread is a daemon, so a blocked write does not keep the program running.
    """

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._jobs: queue.SimpleQueue[_OutputJob | None] = queue.SimpleQueue()
        self._open: set[asyncio.Future[OSError | None]] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="output", daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._jobs.put(None)
        late: set[asyncio.Future[OSError | None]] = set()
        if self._open:
            _, late = await asyncio.wait(self._open, timeout=_GRACE)
        if not late:
            self._thread.join()

    def put(self, data: bytes) -> asyncio.Future[OSError | None]:
        """Queue a write and return its result. Cancelling the future does not stop the write."""
        done: asyncio.Future[OSError | None] = self._loop.create_future()
        self._open.add(done)
        done.add_done_callback(self._open.discard)
        self._jobs.put(_OutputJob(data, done))
        return done

    def _work(self) -> None:
        error: OSError | None = None  # once it fails, nothing more is written
        while (job := self._jobs.get()) is not None:
            if error is None:
                try:
                    _write(self._descriptor, job.data)
                except OSError as failure:
                    error = failure
            try:
                self._loop.call_soon_threadsafe(_settle, job.done, error)
            except RuntimeError:
                return  # the loop is closed, so no task waits for it


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # another program made the same pipe non-blocking
            select.select([], [descriptor], [])


def _settle(done: asyncio.Future[OSError | None], error: OSError | None) -> None:
    if not done.done():
        done.set_result(error)
