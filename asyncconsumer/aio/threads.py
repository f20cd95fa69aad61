"""Threads that do not keep the process from exiting."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


class _ThreadJob(NamedTuple):
    future: Future[Any]
    work: Callable[[], Any]

    def do(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.work()
        # a future cannot raise `StopIteration`, and its caller would wait for ever
        except StopIteration as error:
            self.future.set_exception(_as_runtime_error(error))
        except BaseException as error:  # noqa: BLE001 - raised in the waiting caller
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


async def call_in_daemon_thread(name: str, function: Callable[[], T]) -> T:
    """Call a function in a daemon thread of that name, with the current context variables.

    `asyncio.to_thread` would use the default executor of the application, and `asyncio.run` waits
    for the threads of that executor.
    """
    context = copy_context()
    job = _ThreadJob(Future(), lambda: context.run(function))
    threading.Thread(target=job.do, name=name, daemon=True).start()
    return cast("T", await asyncio.wrap_future(job.future))


class DaemonThreads:
    """A pool of daemon threads, started on demand. Only one thread at a time may call its methods.

    The interpreter waits for all threads of `concurrent.futures` when it exits. A thread that hangs
    would keep the process alive, although no caller waits for it.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._jobs: SimpleQueue[_ThreadJob | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs
    ) -> Future[T]:
        """Call a function in a thread, and return a future of its result."""
        if self._closed:
            raise RuntimeError(
                f"cannot call a function in the thread pool {self._name!r}, because it is closed"
            )
        job = _ThreadJob(Future(), lambda: function(*arguments, **named))
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_threads:
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return cast("Future[T]", job.future)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.do()
            del job  # releases the job's objects during the wait
            self._idle.release()

    def close(self, *, wait: bool) -> None:
        """Cancel jobs that have not started, and end the threads after their current jobs.

        With `wait`, join the threads. This blocks until their jobs return.
        """
        self._closed = True
        with suppress(Empty):
            while True:
                if (job := self._jobs.get_nowait()) is not None:
                    job.future.cancel()
        for _ in self._threads:
            self._jobs.put(None)
        if wait:
            for thread in self._threads:
                thread.join()


def _as_runtime_error(error: StopIteration) -> RuntimeError:
    """Return a `RuntimeError` whose cause is the `StopIteration`.

    A future cannot raise `StopIteration`, and its caller would wait forever.
    """
    raised = RuntimeError("a function in a thread raised StopIteration")
    raised.__cause__ = error
    return raised
