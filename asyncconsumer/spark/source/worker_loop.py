"""What a Python process of Spark's keeps from one task to the next.

Python workers live longer than tasks: the event loop and the clients on it, one for each set of
options, stay for the next task. Spark's own code calls us and takes its time over what it gets, so
the loop runs only while somebody waits for it, in that one's thread. A thread of its own would have
each batch change hands twice, and all of its bytes the core whose cache they are in.
"""

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from asyncconsumer.spark.source.client import Client

T = TypeVar("T")

_MOST_CLIENTS: Final = 8


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose clock can stand still while nobody runs it."""

    def __init__(self) -> None:
        self._pauses = 0
        self._stood = 0.0  # seconds that the clock did
        self._left = super().time()  # when that was last looked at
        super().__init__()

    def time(self) -> float:
        """Seconds from some moment on."""
        return super().time() - self._stood

    def run_until_complete(self, future: Any) -> Any:  # noqa: ANN401 - as asyncio has it
        """Run, and let time pass."""
        self._stand()
        try:
            return super().run_until_complete(future)
        finally:
            self._left = super().time()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Have the clock stand still, but for when it is run in spite of it."""
        self._stand()
        self._pauses += 1
        try:
            yield
        finally:
            self._stand()
            self._pauses -= 1

    def _stand(self) -> None:
        now = super().time()
        if self._pauses:
            self._stood += now - self._left
        self._left = now


class WorkerLoop:
    """An event loop, and the clients that live on it."""

    def __init__(self) -> None:
        self._loop = _Loop()
        self._clients: dict[tuple[tuple[str, str], ...], Client] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it."""
        found: T = self._loop.run_until_complete(work)
        return found

    def client(self, kafka: Mapping[str, str]) -> Client:
        """The client for these options, all of them: another isolation level is another client."""
        self.run(asyncio.sleep(0))  # to see which connections have ended since the last time
        key = tuple(sorted(kafka.items()))
        client = self._clients.pop(key, None)
        if client is None:
            client = self.run(_opened(kafka))
        self._clients[key] = client  # the last one used comes last
        if len(self._clients) > _MOST_CLIENTS:
            self.run(self._clients.pop(next(iter(self._clients))).close())
        return client

    def iterate(self, things: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """An async generator as a plain one. Each step of it is a task of its own."""
        try:
            while (found := self.run(_next(things))) is not None:
                with self._loop.pause():  # for as long as Spark takes, or answers would look late
                    yield found[0]
        finally:
            self.run(things.aclose())

    def close(self) -> None:
        """Close everything; for tests, for a worker just ends."""
        for client in self._clients.values():
            self.run(client.close())
        self._clients.clear()
        self._loop.close()


async def _next(things: AsyncGenerator[T, None]) -> tuple[T] | None:
    async for thing in things:
        return (thing,)
    return None


async def _opened(kafka: Mapping[str, str]) -> Client:
    client = Client(kafka)
    await client.open()
    return client


@functools.cache  # a forked process keeps its parent's too: to close that would be felt there
def _home_of(_process: int) -> WorkerLoop:
    return WorkerLoop()


def home() -> WorkerLoop:
    """That of this process; a forked one has its own."""
    return _home_of(os.getpid())
