"""The results of `run`, and the errors that it finds."""

import asyncio
import contextlib
import gc
import inspect
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from asyncconsumer.testing.virtual_time import (
    Deadlock,
    LeftoverTasks,
    SimLoop,
    SimulationError,
    UnhandledError,
    VirtualTimeout,
    run,
)
from asyncconsumer.testing.virtual_time.failures import describe
from tests.support.interleavings import notes

pytestmark = pytest.mark.fast


def line_of(function: object, text: str) -> str:
    """Return `file:line` of the first line of `function` that contains `text`."""
    lines, first = inspect.getsourcelines(function)  # type: ignore[arg-type]
    return f"{__file__}:{first + next(n for n, line in enumerate(lines) if text in line)}"


# ---------------------------------------------------------------- run


async def answer() -> int:
    await asyncio.sleep(3600)
    return 42


def test_a_coroutine_and_a_coroutine_function_are_both_run() -> None:
    assert [run(answer), run(answer())] == [42, 42]


def test_an_exception_of_main_is_raised_unchanged() -> None:
    async def main() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        run(main)
    assert notes(caught.value) == ""


def test_run_cannot_be_nested() -> None:
    async def main() -> None:
        run(answer())

    with pytest.raises(SimulationError, match="inside a running event loop"):
        run(main)


# ---------------------------------------------------------------- deadlock


async def wait_forever(event: asyncio.Event) -> None:
    await event.wait()  # here


async def ticks(event: asyncio.Event) -> AsyncIterator[int]:
    yield 1
    await event.wait()  # inside
    yield 2


async def read(event: asyncio.Event) -> None:
    async for _ in ticks(event):
        pass


def test_a_deadlock_names_the_waiting_tasks_and_their_lines() -> None:
    async def main() -> None:
        event = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_forever(event), name="the waiter")
            group.create_task(read(event), name="the reader")
            await asyncio.sleep(10)  # the last timer

    with pytest.raises(Deadlock, match=r"at 10\.0 virtual seconds") as caught:
        run(main, limit=3600)
    messages = str(caught.value).splitlines()
    assert len(messages) == 4
    assert f"'Task-1' waits at {line_of(main, 'TaskGroup')} in " in messages[1]
    assert f"'the waiter' waits at {line_of(wait_forever, '# here')} in wait_forever" in messages[2]
    assert "locks.py" in messages[2]
    assert f"'the reader' waits at {line_of(ticks, '# inside')} in ticks" in messages[3]
    assert notes(caught.value) == ""


def test_a_deadlock_without_a_task_is_found() -> None:
    loop = SimLoop()
    with pytest.raises(Deadlock, match="no task is pending"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_tasks_that_ignore_cancellation_are_reported() -> None:
    async def main() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):  # the planted bug
                await asyncio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        run(main)
    assert "even after every task was cancelled" in notes(caught.value)


def test_a_virtual_timeout_names_the_running_tasks() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(7)  # busy

    with pytest.raises(VirtualTimeout, match=r"did not end within 100 virtual seconds") as caught:
        run(main, limit=100)
    assert f"'Task-1' waits at {line_of(main, '# busy')}" in str(caught.value)


def test_a_coroutine_may_end_exactly_at_the_limit() -> None:
    assert run(answer, limit=3600) == 42


def test_cleanup_after_a_virtual_timeout_may_take_virtual_time() -> None:
    cleaned_up: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(60)
            cleaned_up.append("done")

    with pytest.raises(VirtualTimeout):
        run(main, limit=1)
    assert cleaned_up == ["done"]


# ---------------------------------------------------------------- leftovers of main


def orphan(coro: Coroutine[Any, Any, Any], name: str) -> None:
    asyncio.get_running_loop().create_task(coro, name=name)


def test_a_leftover_task_is_found_and_cancelled() -> None:
    ended: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(10)  # left here
        finally:
            ended.append("child")

    async def main() -> None:
        orphan(child(), "the orphan")
        await asyncio.sleep(1)

    with pytest.raises(LeftoverTasks) as caught:
        run(main)
    assert f"'the orphan' waits at {line_of(child, '# left here')}" in str(caught.value)
    assert ended == ["child"]


def test_a_leftover_task_that_has_not_started_is_found() -> None:
    async def main() -> None:
        orphan(answer(), "the unstarted")

    with pytest.raises(LeftoverTasks, match="'the unstarted'"):
        run(main)


def test_the_description_of_a_task_says_that_it_has_not_started() -> None:
    loop = SimLoop()
    task = loop.create_task(answer(), name="the late one")
    assert (
        describe([task]) == f"  'the late one' has not started: {line_of(answer, 'def')} in answer"
    )
    assert loop.run_until_complete(task) == 42
    loop.close()


def test_leftover_tasks_are_a_note_if_main_fails() -> None:
    async def main() -> None:
        orphan(answer(), "the orphan")
        await asyncio.sleep(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        run(main)
    assert "LeftoverTasks: tasks still ran when the main coroutine ended:\n  'the orphan'" in notes(
        caught.value
    )


def test_an_unretrieved_task_failure_is_found() -> None:
    async def child() -> None:
        raise ZeroDivisionError("unseen")

    async def main() -> None:
        orphan(child(), "the loser")
        await asyncio.sleep(1)

    with pytest.raises(
        UnhandledError, match=r"'the loser'.*ZeroDivisionError\('unseen'\)"
    ) as caught:
        run(main)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_early_task_failure_is_found_without_garbage_collection() -> None:
    async def child(number: int) -> None:
        itself = asyncio.current_task()  # a cycle: the exception holds this frame
        if number == 3:
            raise ZeroDivisionError(itself)

    async def main() -> None:
        for number in range(200):
            orphan(child(number), f"child {number}")
            await asyncio.sleep(1)

    gc.disable()
    try:
        with pytest.raises(UnhandledError, match="'child 3'"):
            run(main)
    finally:
        gc.enable()


def test_a_retrieved_task_failure_is_not_reported() -> None:
    async def child() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(child())
        await asyncio.wait([task])
        assert isinstance(task.exception(), ZeroDivisionError)

    run(main)


def test_a_callback_that_raises_is_found() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(int, "no number")
        await asyncio.sleep(1)

    with pytest.raises(UnhandledError, match=r"Exception in callback.*no number"):
        run(main)


def test_errors_reported_to_the_loop_are_found() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_exception_handler({"exception": ZeroDivisionError("told")})

    with pytest.raises(UnhandledError, match=r"ZeroDivisionError\('told'\)"):
        run(main)


def test_an_unretrieved_future_failure_is_found() -> None:
    async def main() -> None:
        asyncio.get_running_loop().create_future().set_exception(ZeroDivisionError("unseen"))

    with pytest.raises(UnhandledError, match=r"never retrieved.*unseen"):
        run(main)


def test_async_generators_are_closed() -> None:
    closed: list[str] = []

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            closed.append(name)

    retained = numbers("kept")

    async def main() -> None:
        async for _ in numbers("abandoned"):
            break
        await anext(retained)
        await asyncio.sleep(0)

    for seed in range(20):
        retained = numbers("kept")
        run(main, seed=seed)
    assert sorted(closed) == ["abandoned"] * 20 + ["kept"] * 20
