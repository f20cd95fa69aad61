"""Large bodies are decompressed in a thread, one at a time, while the event loop runs."""

import asyncio
import threading
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar


class Preparable(Protocol):
    """What has a large body to decompress."""

    def prepare(self) -> None:
        """Decompress it."""


R = TypeVar("R", bound=Preparable)


class _Job(NamedTuple):
    reader: Preparable
    done: asyncio.Future[None]


class Preparing:
    """Prepares readers one after the other: a body in the making is charged to no budget yet.

    A thread is started for each body, which takes far longer than that. It is no daemon thread:
    it ends soon, and a codec must not be stopped by the end of the interpreter.
    """

    def __init__(self) -> None:
        self._job: _Job | None = None

    async def prepare(self, reader: R) -> R:
        """Call `reader.prepare()` in a thread; returns the reader, which reads on at once.

        A wait that is cancelled leaves the thread alone. Who asks for the same again joins it.
        """
        loop = asyncio.get_running_loop()
        if getattr(loop, "virtual_time", False):  # a simulation knows no threads
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
        # added first: when whoever waits goes on, the next may begin
        job.done.add_done_callback(self._over)

        def settle(error: BaseException | None) -> None:
            if error is None:
                job.done.set_result(None)
            else:
                job.done.set_exception(error)

        def run() -> None:
            failure: BaseException | None = None
            try:
                reader.prepare()
            except BaseException as error:  # noqa: BLE001 - raised where somebody waits
                failure = error
            with suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(settle, failure)

        threading.Thread(target=run, name="asyncconsumer-decompress").start()
        return job

    def _over(self, done: asyncio.Future[None]) -> None:
        done.exception()  # nobody may wait for it any more
        self._job = None
