"""The event loop and the Kafka clients that a Spark Python process keeps between tasks.

Python workers live longer than tasks. The event loop is kept for the next task, with one client for
each set of options. The loop runs in the caller's thread, only while the caller waits for it. With
a separate thread, each Arrow batch would pass between threads twice and move between CPU caches.
"""

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from asyncconsumer.spark.source.client import Client

T = TypeVar("T")

_MAX_CLIENTS: Final = 8


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be paused while the loop does not run."""

    def __init__(self) -> None:
        self._pauses = 0
        self._paused_seconds = 0.0
        self._updated = super().time()  # when `_paused_seconds` was last updated
        super().__init__()

    def time(self) -> float:
        """Return the monotonic time without the paused seconds."""
        return super().time() - self._paused_seconds

    def run_until_complete(self, future: Any) -> Any:  # noqa: ANN401 - as asyncio has it
        """Run the loop until `future` is done, and return its result.

        The clock advances meanwhile, even within `pause`.
        """
        self._update()
        try:
            return super().run_until_complete(future)
        finally:
            self._updated = super().time()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause the clock, except while the loop runs."""
        self._update()
        self._pauses += 1
        try:
            yield
        finally:
            self._update()
            self._pauses -= 1

    def _update(self) -> None:
        now = super().time()
        if self._pauses:
            self._paused_seconds += now - self._updated
        self._updated = now


class WorkerLoop:
    """An event loop with the Kafka clients that use it."""

    def __init__(self) -> None:
        self._loop = _Loop()
        self._clients: dict[tuple[tuple[str, str], ...], Client] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine `work` on the loop and return its result."""
        result: T = self._loop.run_until_complete(work)
        return result

    def client(self, kafka: Mapping[str, str]) -> Client:
        """Return the client for these Kafka options. Open it if there is none yet."""
        self.run(asyncio.sleep(0))  # to notice connections that were closed meanwhile
        key = tuple(sorted(kafka.items()))
        client = self._clients.pop(key, None)
        if client is None:
            client = self.run(_open_client(kafka))
        self._clients[key] = client  # in order of last use
        if len(self._clients) > _MAX_CLIENTS:
            self.run(self._clients.pop(next(iter(self._clients))).close())
        return client

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Iterate over an async generator from synchronous code. Each step is a separate task."""
        try:
            while (item := self.run(_next(items))) is not None:
                with self._loop.pause():  # otherwise responses would time out while Spark works
                    yield item[0]
        finally:
            self.run(items.aclose())

    def close(self) -> None:
        """Close the clients and the loop. Only tests call this, because workers just exit."""
        for client in self._clients.values():
            self.run(client.close())
        self._clients.clear()
        self._loop.close()


async def _next(items: AsyncGenerator[T, None]) -> tuple[T] | None:
    async for item in items:
        return (item,)
    return None


async def _open_client(kafka: Mapping[str, str]) -> Client:
    client = Client(kafka)
    await client.open()
    return client


@functools.cache  # also keeps the parent's loop after a fork: closing it would affect the parent
def _loop_of_process(_process: int) -> WorkerLoop:
    return WorkerLoop()


def worker_loop() -> WorkerLoop:
    """Return the worker loop of this process. A forked process has its own."""
    return _loop_of_process(os.getpid())
