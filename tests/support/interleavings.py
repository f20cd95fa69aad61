"""Small programs that run in many task orders, and a log of each order."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from asyncconsumer.testing.virtual_time import run

SEEDS = range(200)
Main = Callable[[list[str]], Coroutine[Any, Any, None]]


def logged(main: Main, seed: int | None, lag: float = 0.0) -> list[str]:
    log: list[str] = []
    run(main(log), seed=seed, lag=lag)
    return log


def orders(main: Main, lag: float = 0.0) -> set[tuple[str, ...]]:
    return {tuple(logged(main, seed, lag)) for seed in SEEDS}


async def noise(rounds: int) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


async def with_noise(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` beside tasks that yield to the loop, each for another number of times."""
    async with asyncio.TaskGroup() as group:
        for rounds in range(1, 6):
            group.create_task(noise(rounds))
        group.create_task(main)


async def medley(log: list[str]) -> None:
    """Use most of asyncio's primitives, without timers."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    event = asyncio.Event()

    async def producer(first: int) -> None:
        for item in range(first, first + 4):
            await queue.put(item)
            loop.call_soon(log.append, f"put {item}")
        event.set()

    async def consumer(name: str) -> None:
        for _ in range(4):
            log.append(f"{name} got {await queue.get()}")
            await asyncio.sleep(0)

    async def watcher() -> None:
        await event.wait()
        log.append("watcher")

    async with asyncio.TaskGroup() as group:
        group.create_task(watcher())
        for name, first in (("a", 0), ("b", 10)):
            group.create_task(consumer(name))
            group.create_task(producer(first)).add_done_callback(lambda _: log.append("done"))


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))
