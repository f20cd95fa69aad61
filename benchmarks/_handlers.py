"""The contenders of `benchmarks.handlers`. Each runs in a process of its own, see `_child`.

Each handles `count` records of a topic, from its beginning, as a member of a group that commits.
The clock runs from the first call of the handler to the end of the last one, so the join does not
count.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from asyncconsumer.handlers.handler import OrderingName
from benchmarks._child import Consumer, Figures, Watch, run_one


class Counted:
    """The work of a handler, which is a wait of `delay_ms` or nothing, for `count` records.

    The event `done` is set after the last record.
    """

    def __init__(self, count: int, delay_ms: float) -> None:
        self._count = count
        self._remaining = count
        self._delay = delay_ms / 1000
        self._watch: Watch | None = None
        self.done = asyncio.Event()
        self.figures: Figures = {}

    def work(self) -> Callable[[], Awaitable[None]]:
        return self._wait if self._delay else self._nothing

    async def _wait(self) -> None:
        if self._watch is None:
            self._watch = Watch()
        await asyncio.sleep(self._delay)
        self._finish()

    async def _nothing(self) -> None:
        if self._watch is None:
            self._watch = Watch()
        self._finish()

    def _finish(self) -> None:
        self._remaining -= 1
        if not self._remaining:
            assert self._watch is not None
            self.figures = self._watch.figures(self._count)
            self.done.set()


def group() -> str:
    return f"bench-{uuid.uuid4()}"


async def asyncconsumer(
    servers: str,
    topic: str,
    *,
    count: int,
    delay_ms: float,
    concurrency: int,
    ordering: OrderingName,
) -> Figures:
    from asyncconsumer import ConsumerApp

    counted = Counted(count, delay_ms)
    work = counted.work()
    app = ConsumerApp(bootstrap_servers=servers, group_id=group(), auto_offset_reset="earliest")

    @app.handler(topic, ordering=ordering, concurrency=concurrency)
    async def handle(value: bytes) -> None:
        await work()

    async with app:
        await counted.done.wait()
    return counted.figures


async def aiokafka_loop(servers: str, topic: str, *, count: int, delay_ms: float) -> Figures:
    """Handle one record after the other, as the documentation of aiokafka shows it."""
    from aiokafka import AIOKafkaConsumer

    counted = Counted(count, delay_ms)
    work = counted.work()
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group(), auto_offset_reset="earliest"
    ) as consumer:
        async for _ in consumer:
            await work()
            if counted.done.is_set():
                break
    return counted.figures


async def semaphore(
    servers: str, topic: str, *, count: int, delay_ms: float, concurrency: int
) -> Figures:
    """Run a task for each record, with a semaphore.

    This keeps no order, and commits records that are not handled yet.
    """
    from aiokafka import AIOKafkaConsumer

    counted = Counted(count, delay_ms)
    work = counted.work()
    free = asyncio.Semaphore(concurrency)
    taken = 0

    async def handle() -> None:
        try:
            await work()
        finally:
            free.release()

    async with (
        AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=group(), auto_offset_reset="earliest"
        ) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        async for _ in consumer:
            await free.acquire()
            tasks.create_task(handle())
            taken += 1
            if taken == count:
                break
    return counted.figures


async def faststream(
    servers: str, topic: str, *, count: int, delay_ms: float, max_workers: int
) -> Figures:
    """Run a subscriber of faststream.

    With several workers it keeps no order, and commits before the handler is done.
    """
    from faststream import FastStream
    from faststream.kafka import KafkaBroker

    counted = Counted(count, delay_ms)
    work = counted.work()
    broker = KafkaBroker(servers, logger=None)
    app = FastStream(broker, logger=None)

    @broker.subscriber(  # type: ignore[untyped-decorator, unused-ignore] # unless it is installed
        topic, group_id=group(), auto_offset_reset="earliest", max_workers=max_workers
    )
    async def handle(body: bytes) -> None:
        if not counted.done.is_set():
            await work()

    await app.start()
    await counted.done.wait()
    await app.stop()
    return counted.figures


CONTENDERS: Final[dict[str, Consumer]] = {
    "asyncconsumer": asyncconsumer,
    "aiokafka": aiokafka_loop,
    "semaphore": semaphore,
    "faststream": faststream,
}


if __name__ == "__main__":
    run_one(CONTENDERS)
