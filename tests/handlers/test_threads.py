"""Threads that hang, and the calls after them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from asyncconsumer import Record
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.errors import HandlerTimedOut
from asyncconsumer.handlers.arguments import Argument
from asyncconsumer.handlers.invoke import CallHandler, caller
from asyncconsumer.handlers.threads import HandlerThreads
from tests.support.fake_handlers import record

pytestmark = pytest.mark.fast
SPARE = 16


class Hanging:
    """A handler that hangs with records up to an offset, until a test ends it."""

    def __init__(self, below: int) -> None:
        self.began: list[int] = []
        self.go = threading.Event()
        self.threads = HandlerThreads("h", 2)
        self._below = below

    def handle(self, record: Record) -> None:
        self.began.append(record.offset)
        if record.offset < self._below:
            self.go.wait()

    @property
    def call(self) -> CallHandler:
        return self._caller(200)

    @property
    def call_without_timeout(self) -> CallHandler:
        return self._caller(None)

    def _caller(self, timeout_ms: int | None) -> CallHandler:
        whole, threads = Argument(lambda record: record), self.threads
        return caller(
            "h", self.handle, [whole], batch=False, timeout_ms=timeout_ms, threads=threads
        )


@asynccontextmanager
async def hanging(below: int) -> AsyncIterator[Hanging]:
    bench = Hanging(below)
    try:
        yield bench
    finally:
        bench.go.set()
        await bench.threads.close()


async def test_hanging_calls_leave_threads_for_others() -> None:
    async with hanging(below=4) as bench:
        for offset in range(4):
            with pytest.raises(HandlerTimedOut):
                await bench.call(record(offset))
        for offset in range(4, 8):
            await bench.call(record(offset))
        assert bench.began == list(range(8))


async def test_the_wait_for_a_thread_does_not_count_for_the_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hanging(below=SPARE) as bench:
        async with asyncio.TaskGroup() as group:
            hung = [group.create_task(timed_out(bench.call, offset)) for offset in range(SPARE)]
        assert all(task.result() for task in hung)
        late = asyncio.get_running_loop().create_task(timed_out(bench.call, 99))
        await asyncio.sleep(0.5)  # longer than its timeout
        assert not late.done()
        assert 99 not in bench.began
        assert "16 threads of cancelled calls still run" in caplog.text
        bench.go.set()
        assert not await late
        assert bench.began[-1] == 99


async def test_calls_without_a_timeout_wait_for_a_free_thread() -> None:
    """A revoked partition cancels its calls, so their threads count in the same way."""
    loop = asyncio.get_running_loop()
    async with hanging(below=SPARE) as bench:
        for offset in range(SPARE):
            task = loop.create_task(timed_out(bench.call_without_timeout, offset))
            await wait_until(lambda offset=offset: offset in bench.began)  # type: ignore[misc]
            task.cancel()
            await asyncio.wait([task])
        late = loop.create_task(timed_out(bench.call_without_timeout, 99))
        await asyncio.sleep(0.1)
        assert 99 not in bench.began  # two threads are free, but only for calls that are awaited
        bench.go.set()
        await late
        assert bench.began[-1] == 99


async def timed_out(call: CallHandler, offset: int) -> bool:
    try:
        await call(record(offset))
    except HandlerTimedOut:
        return True
    return False


async def called(function: Callable[..., Any], offset: int = 0) -> None:
    """Call a function like a handler without a timeout."""
    threads, whole = HandlerThreads("h", 2), Argument(lambda record: record)
    call = caller("h", function, [whole], batch=False, timeout_ms=None, threads=threads)
    try:
        async with asyncio.timeout(5):
            await call(record(offset))
    finally:
        await threads.close()


async def test_a_coroutine_in_a_plain_decorator_is_awaited() -> None:
    """A coroutine is recognised only as a result. Without an await, the record would be lost."""
    done: list[int] = []

    async def handle(record: Record) -> None:
        await asyncio.sleep(0)
        done.append(record.offset)

    def decorated(record: Record) -> Any:
        return handle(record)

    await called(decorated, offset=7)
    assert done == [7]


async def test_a_stop_iteration_of_a_plain_handler_is_reported() -> None:
    def handle(record: Record) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await called(handle)


async def test_a_plain_handler_sees_context_variables() -> None:
    tenant = ContextVar("tenant", default="nobody")
    seen: list[str] = []
    tenant.set("ann")
    await called(lambda record: seen.append(tenant.get()))
    assert seen == ["ann"]
