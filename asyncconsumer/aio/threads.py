"""Threads that do not keep a process from ending."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
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
        except StopIteration as error:  # asyncio cannot raise it: who waits would do so for ever
            self.future.set_exception(_told_of(error))
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class DaemonThreads:
    """At most so many, each started when it is needed. One thread at a time may use it.

    Those of `concurrent.futures` are all waited for when the process ends: one that hangs would
    keep it for ever, after everybody gave that one up.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._jobs: SimpleQueue[_ThreadJob | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs
    ) -> Future[T]:
        """Have it called; what it returns is in the future."""
        if self._closed:
            raise RuntimeError(f"the threads {self._name} are closed")
        job = _ThreadJob(Future(), lambda: function(*arguments, **named))
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return cast("Future[T]", job.future)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.do()
            del job  # what it holds is not needed while we wait
            self._idle.release()

    def close(self, *, wait: bool) -> None:
        """Cancel what has not begun, and end the threads; `wait` for them if they surely end."""
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


def _told_of(error: StopIteration) -> RuntimeError:
    """The same as coroutines make of it."""
    raised = RuntimeError("a function in a thread raised StopIteration")
    raised.__cause__ = error
    return raised
