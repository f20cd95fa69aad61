"""What a Python process of Spark's keeps from one task to the next.

Python workers live longer than tasks: the event loop and the clients on it, one for each set of
options, stay for the next task. The loop has a thread of its own, for Spark may take its time over
a batch: meanwhile answers come, and must not look late.
"""

import asyncio
import functools
import gc
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

from asyncconsumer.spark.client import Client

T = TypeVar("T")

_MOST_CLIENTS: Final = 8
_AHEAD: Final = (
    2  # batches that are made before they are asked for, while something else is awaited
)


class Home:
    """An event loop, and the clients that live on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="asyncconsumer", daemon=True
        )
        self._thread.start()
        self._clients: dict[tuple[tuple[str, str], ...], Client] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def client(self, kafka: Mapping[str, str]) -> Client:
        """The client for these options, all of them: another isolation level is another client."""
        key = tuple(sorted(kafka.items()))
        client = self._clients.pop(key, None)
        if client is None:
            client = self.run(_opened(kafka))
        self._clients[key] = client  # the last one used comes last
        if len(self._clients) > _MOST_CLIENTS:
            self.run(self._clients.pop(next(iter(self._clients))).close())
        return client

    def iterate(self, things: AsyncIterator[T]) -> Iterator[T]:
        """An async iterator as a plain one. One task reads it, from its beginning to its end."""
        relay, pump = self.run(_pumping(things))
        try:
            while not isinstance(thing := self.run(relay.get()), _End):
                yield thing
            if thing.error is not None:
                raise thing.error
        finally:
            self.run(_ended(pump))

    def close(self) -> None:
        """Close everything; for tests, for a worker just ends."""
        for client in self._clients.values():
            self.run(client.close())
        self._clients.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _End:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


async def _opened(kafka: Mapping[str, str]) -> Client:
    client = Client(kafka)
    await client.open()
    return client


async def _pumping(
    things: AsyncIterator[T],
) -> "tuple[asyncio.Queue[T | _End], asyncio.Task[None]]":
    relay: asyncio.Queue[T | _End] = asyncio.Queue(_AHEAD)
    return relay, asyncio.get_running_loop().create_task(_pump(things, relay))


async def _pump(things: AsyncIterator[T], relay: "asyncio.Queue[T | _End]") -> None:
    try:
        async for thing in things:
            await relay.put(thing)
    except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
        await relay.put(_End(error))
    else:
        await relay.put(_End())


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})


@functools.lru_cache(maxsize=1)
def _home_of(_process: int) -> Home:
    # Spark has every garbage looked for after each task: what was imported is none
    gc.collect()
    gc.freeze()
    return Home()


def home() -> Home:
    """That of this process; a forked one has its own."""
    return _home_of(os.getpid())
