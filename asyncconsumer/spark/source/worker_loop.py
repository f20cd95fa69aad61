"""The event loop and the Kafka clients that a Spark Python process keeps between tasks.

Python workers live longer than tasks. The event loop is kept for the next task, with one client or
producer for each set of options. The loop runs in the caller's thread, only while the caller waits
for it. With a separate thread, each Arrow batch would pass between threads twice and move between
CPU caches.
"""

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar, cast

from asyncconsumer.spark.source.client import Client


class Resource(Protocol):
    """A client or a producer that stays open between tasks."""

    async def open(self) -> None:
        """Connect to the cluster. The connections stay open until `close` is called."""

    async def close(self) -> None:
        """Close all connections."""


T = TypeVar("T")
R = TypeVar("R", bound=Resource)

_MAX_RESOURCES: Final = 8


class _PausableLoop(asyncio.SelectorEventLoop):
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
        """Pause the clock within this context, except while the loop runs."""
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
    """An event loop with the Kafka clients and producers that use it."""

    def __init__(self) -> None:
        self._loop = _PausableLoop()
        self._resources: dict[tuple[object, ...], Resource] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine `work` on the loop and return its result."""
        result: T = self._loop.run_until_complete(work)
        return result

    def client(self, kafka: Mapping[str, str]) -> Client:
        """Return the client with these Kafka options. Open a new one if none is open."""
        return self.resource(Client, kafka)

    def resource(self, kind: Callable[[Mapping[str, str]], R], kafka: Mapping[str, str]) -> R:
        """Return the resource of the class `kind` with these Kafka options.

        Open a new one if none is open. Then close the least recently used one if too many are open.
        """
        self.run(asyncio.sleep(0))  # to notice connections that were closed meanwhile
        key = (kind, *sorted(kafka.items()))
        resource = cast("R | None", self._resources.pop(key, None))
        if resource is None:
            resource = kind(kafka)
            self.run(resource.open())
        self._resources[key] = resource  # in order of last use
        if len(self._resources) > _MAX_RESOURCES:
            self.discard(next(iter(self._resources.values())))
        return resource

    def discard(self, resource: Resource) -> None:
        """Close a resource, so that `resource` and `client` do not return it again."""
        for key in [key for key, value in self._resources.items() if value is resource]:
            del self._resources[key]
        self.run(resource.close())

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Iterate over an async generator from synchronous code. Each step is a separate task."""
        try:
            while (item := self.run(_next(items))) is not None:
                with self._loop.pause():  # otherwise responses would time out while Spark works
                    yield item[0]
        finally:
            self.run(items.aclose())

    def receive(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of a synchronous iterator. The clock is paused while it makes an item."""
        while True:
            with self._loop.pause():
                item = next(items, None)
            if item is None:
                return
            yield item

    def close(self) -> None:
        """Close the resources and the loop. Only tests call this, because workers just exit."""
        for resource in list(self._resources.values()):
            self.discard(resource)
        self._loop.close()


async def _next(items: AsyncGenerator[T, None]) -> tuple[T] | None:
    async for item in items:
        return (item,)
    return None


@functools.cache  # also keeps the parent's loop after a fork: closing it would affect the parent
def _loop_of_process(_process: int) -> WorkerLoop:
    return WorkerLoop()


def worker_loop() -> WorkerLoop:
    """Return the worker loop of this process. A forked process has its own."""
    return _loop_of_process(os.getpid())
