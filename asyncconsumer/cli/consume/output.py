"""A writer to standard output in a thread, because the reader of a pipe may be slow."""

import asyncio
import os
import queue
import select
import threading
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from asyncconsumer.aio.resource import AsyncResource

_GRACE: Final = 5.0  # seconds for unfinished writes at the end


class _OutputJob(NamedTuple):
    data: bytes
    done: asyncio.Future[OSError | None]


class Output(AsyncResource):
    """An ordered, unbuffered writer to standard output, in a thread.

    A write may block for a long time, for example in a pipe to `less`. In the event loop it would
    prevent heartbeats. The thread is a daemon, so a blocked write does not keep the process alive.
    """

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._jobs: queue.SimpleQueue[_OutputJob | None] = queue.SimpleQueue()
        self._pending: set[asyncio.Future[OSError | None]] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="output", daemon=True)

    async def _open(self, stack: AsyncExitStack) -> None:
        self._thread.start()
        stack.push_async_callback(self._finish)

    async def _finish(self) -> None:
        self._jobs.put(None)
        unfinished: set[asyncio.Future[OSError | None]] = set()
        if self._pending:
            _, unfinished = await asyncio.wait(self._pending, timeout=_GRACE)
        if not unfinished:
            self._thread.join()

    def put(self, data: bytes) -> asyncio.Future[OSError | None]:
        """Queue a write. Return a future whose result is the write's error, or None.

        Cancelling the future does not stop the write.
        """
        done: asyncio.Future[OSError | None] = self._loop.create_future()
        self._pending.add(done)
        done.add_done_callback(self._pending.discard)
        self._jobs.put(_OutputJob(data, done))
        return done

    def _work(self) -> None:
        error: OSError | None = None  # after the first error, nothing more is written
        while (job := self._jobs.get()) is not None:
            if error is None:
                try:
                    _write(self._descriptor, job.data)
                except OSError as failure:
                    error = failure
            try:
                self._loop.call_soon_threadsafe(_set_result, job.done, error)
            except RuntimeError:
                return  # the loop is closed, so no task waits for the result


def _write(descriptor: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        try:
            remaining = remaining[os.write(descriptor, remaining) :]
        except BlockingIOError:  # another program set the same pipe to non-blocking mode
            select.select([], [descriptor], [])


def _set_result(done: asyncio.Future[OSError | None], error: OSError | None) -> None:
    if not done.done():
        done.set_result(error)
