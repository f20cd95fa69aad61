"""Threads that do not keep a process from ending."""

import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from asyncconsumer.aio.threads import DaemonThreads

pytestmark = pytest.mark.fast


def test_a_submitted_function_returns_or_raises() -> None:
    threads = DaemonThreads(2, "t")
    assert threads.submit(int, "ff", base=16).result() == 255
    assert threads.submit(lambda: threading.current_thread().name).result().startswith("t_")
    with pytest.raises(ValueError, match="nonsense"):
        threads.submit(int, "nonsense").result()
    assert threads.submit(int, "3").result() == 3  # the thread continues after the error
    threads.close(wait=True)
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(int)


def test_only_the_given_number_of_functions_run_at_once() -> None:
    threads, together, busy = DaemonThreads(3, "t"), threading.Barrier(4), list[int]()
    go = threading.Event()

    def work() -> None:
        busy.append(1)
        together.wait()
        go.wait()

    running = [threads.submit(work) for _ in range(3)]
    together.wait()
    waiting = threads.submit(busy.clear)
    assert len(busy) == 3
    assert not waiting.running()
    go.set()
    for future in (*running, waiting):
        future.result()
    assert busy == []
    threads.close(wait=True)


def test_closing_cancels_queued_functions_and_leaves_running_ones() -> None:
    threads, begun, go = DaemonThreads(1, "t"), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go.wait()

    hanging, waiting = threads.submit(hang), threads.submit(int)
    begun.wait()
    threads.close(wait=False)
    with pytest.raises(CancelledError):
        waiting.result()
    go.set()
    hanging.result()
    threads.close(wait=True)


HANGING = """
import asyncio, threading
from {module} import {name}

async def main():
    threads = {name}({arguments})
    begun = threading.Event()

    def hang():
        begun.set()
        threading.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(threads.run(hang))
        await asyncio.to_thread(begun.wait)
        try:
            async with asyncio.timeout(0.01):
                await threads.{close}()
        except TimeoutError:
            print("given up")
        task.cancel()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("module", "name", "arguments", "close"),
    [
        ("asyncconsumer.spark.sinks.protocol", "SinkThreads", "1", "end"),
        ("asyncconsumer.handlers.threads", "HandlerThreads", "'handler', 1", "close"),
    ],
)
def test_a_process_ends_although_a_thread_hangs(
    module: str, name: str, arguments: str, close: str
) -> None:
    program = HANGING.format(module=module, name=name, arguments=arguments, close=close)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "given up"), ended.stderr
