"""Exits from an `async for`, as reported to its iterator."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from types import ModuleType
from typing import Any, Self, TypeVar

import pytest

from asyncconsumer.records import decoding

pytestmark = pytest.mark.fast

T = TypeVar("T")


class Numbers:
    """0 to 6, then an error, then 8, and the end."""

    def __init__(self) -> None:
        self.last = -1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        await asyncio.sleep(0)
        self.last += 1
        if self.last == 9:
            raise StopAsyncIteration
        if self.last == 7:
            raise KeyError(7)
        return self.last


class Iteration:
    """An iteration that stores the reports of loops."""

    def __init__(self, reports: list[str] | None = None) -> None:
        self.reports = [] if reports is None else reports
        self.begun = 0
        self.loop: weakref.ref[Any] | None = None

    def begin(self) -> None:
        self.begun += 1

    def on_exit(self, reason: str) -> None:
        self.reports.append(reason)

    def again(self) -> "Iteration":
        return Iteration(self.reports)


async def by_break(loop: Any) -> None:
    async for _ in loop:
        break


async def by_break_after_a_finally(loop: Any) -> None:
    async for _ in loop:
        try:
            break
        finally:
            await asyncio.sleep(0)


async def by_break_out_of_a_block(loop: Any) -> None:
    @asynccontextmanager
    async def block() -> AsyncIterator[None]:
        yield

    async for _ in loop:
        async with block():
            for _ in range(3):
                break
            break


async def by_return(loop: Any) -> int:
    async for number in loop:
        return int(number)
    return -1


async def by_return_of_a_call(loop: Any) -> int:
    async for number in loop:
        return max(int(number), await asyncio.sleep(0, 3))
    return -1


async def by_break_in_a_generator(loop: Any) -> None:
    async def first() -> AsyncIterator[int]:
        async for number in loop:
            yield number
            break

    assert [number async for number in first()] == [0]


async def by_error(loop: Any) -> None:
    try:
        async for number in loop:
            number / 0
    except ZeroDivisionError:
        pass


async def by_error_in_a_call(loop: Any) -> None:
    async def inner() -> None:
        async for number in loop:
            raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        await inner()


async def by_error_in_a_finally(loop: Any) -> None:
    async def inner() -> None:
        async for number in loop:
            try:
                break
            finally:
                number / 0

    with pytest.raises(ZeroDivisionError):
        await inner()


async def by_timeout(loop: Any) -> None:
    async def inner() -> None:
        async with asyncio.timeout(0.01):
            async for _ in loop:
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await inner()


async def by_cancellation(loop: Any) -> None:
    async def inner() -> None:
        async for _ in loop:
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(inner())
        await asyncio.sleep(0.01)
        task.cancel()


async def by_error_of_the_source(loop: Any) -> None:
    with pytest.raises(KeyError):
        async for _ in loop:
            pass


async def by_error_in_a_comprehension(loop: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        [number / 0 async for number in loop]
    gc.collect()


async def by_error_around_a_generator(loop: Any) -> None:
    async def each() -> AsyncGenerator[int, None]:
        async for number in loop:
            yield number

    async def fail() -> None:
        async with aclosing(each()) as numbers:
            async for number in numbers:
                number / 0

    with pytest.raises(ZeroDivisionError):
        await fail()


async def by_break_around_a_generator(loop: Any) -> None:
    async def each() -> AsyncIterator[int]:
        async for number in loop:
            yield number

    async for _ in each():
        break
    await asyncio.sleep(0.01)  # the event loop closes the generator


async def by_error_around_a_generator_expression(loop: Any) -> None:
    async def fail() -> None:
        async for number in (number async for number in loop):
            number / 0

    with pytest.raises(ZeroDivisionError):
        await fail()
    await asyncio.sleep(0.01)


async def by_hand(loop: Any) -> None:
    iterator = aiter(loop)
    await anext(iterator)
    iterator = None
    iterators = [aiter(loop)]
    await anext(iterators[0])
    iterators.pop()
    await anext(aiter(loop))


LEAVES: dict[str, list[Callable[[Any], Any]]] = {
    "break": [
        by_break,
        by_break_after_a_finally,
        by_break_out_of_a_block,
        by_return,
        by_return_of_a_call,
        by_break_in_a_generator,
    ],
    "error": [
        by_error,
        by_error_in_a_call,
        by_error_in_a_finally,
        by_timeout,
        by_cancellation,
        by_error_of_the_source,
        by_error_in_a_comprehension,
    ],
    "unknown": [
        by_error_around_a_generator,
        by_break_around_a_generator,
        by_error_around_a_generator_expression,
        by_hand,
    ],
}


@pytest.mark.parametrize(
    ("how", "leave"),
    [(how, leave) for how, leaves in LEAVES.items() for leave in leaves],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
async def test_a_loop_reports_how_it_was_left(
    how: str, leave: Callable[[Any], Any], decoder: ModuleType
) -> None:
    reports: list[str] = []
    loop = decoder.Loop(Numbers(), Iteration(reports))
    await leave(loop)
    assert set(reports) == {how}
    del loop  # the loop is dropped
    assert set(reports) == {how}


async def test_an_async_for_statement_begins_once(decoder: ModuleType) -> None:
    iteration = Iteration()
    with pytest.raises(KeyError):
        async for _ in _only(decoder.Loop(Numbers(), iteration)):
            pass
    assert iteration.begun == 1


async def test_an_async_for_statement_begins_again_on_request(decoder: ModuleType) -> None:
    reports: list[str] = []
    parent = Iteration(reports)
    begun: list[int] = []
    loop = decoder.Loop(Numbers(), parent)
    child: Iteration | None = None

    def again() -> Iteration:
        nonlocal child
        child = Iteration(reports)
        return child

    parent.again = again  # type: ignore[method-assign]
    async for number in loop:
        assert child is not None
        assert child.loop is not None
        begun.append(child.begun)
        if number == 1:
            child.loop().begin_again()  # type: ignore[union-attr]
        if number == 3:
            break
    assert begun == [1, 1, 2, 2]


async def in_a_task(work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
    return task.result()


async def each(loop: Any) -> AsyncGenerator[int, None]:
    async for number in _only(loop):
        yield number


@pytest.mark.parametrize("form", ["by hand", "generator"])
async def test_each_requesting_task_begins(decoder: ModuleType, form: str) -> None:
    iteration = Iteration()
    loop = decoder.Loop(Numbers(), iteration)
    numbers = loop if form == "by hand" else each(loop)
    begun = []

    async def ask(count: int) -> list[int]:
        items = [await anext(numbers) for _ in range(count)]
        begun.append(iteration.begun)
        return items

    assert await ask(2) == [0, 1]
    assert await in_a_task(ask(2)) == [2, 3]
    assert await in_a_task(ask(1)) == [4]
    assert await ask(2) == [5, 6]
    assert begun == [1, 2, 3, 4]


@pytest.mark.parametrize("form", ["by hand", "generator"])
async def test_a_task_begins_again_on_request(decoder: ModuleType, form: str) -> None:
    iteration = Iteration()
    loop = decoder.Loop(Numbers(), iteration)
    numbers = loop if form == "by hand" else each(loop)
    assert [await anext(numbers) for _ in range(2)] == [0, 1]
    loop.begin_again()
    assert [await anext(numbers) for _ in range(2)] == [2, 3]
    assert iteration.begun == 2


def test_without_an_event_loop_each_request_begins(decoder: ModuleType) -> None:
    class Ready:
        def __anext__(self) -> "Ready":
            return self

    iteration = Iteration()
    loop = decoder.Loop(Ready(), iteration)
    loop.__anext__()
    loop.__anext__()
    assert iteration.begun == 2


async def test_a_loop_does_not_keep_its_task_alive(decoder: ModuleType) -> None:
    loop = decoder.Loop(Numbers(), Iteration())

    tasks: list[weakref.ref[Any]] = []

    async def ask() -> int:
        tasks.append(weakref.ref(asyncio.current_task()))
        return int(await anext(loop))

    assert await in_a_task(ask()) == 0
    await asyncio.sleep(0)
    gc.collect()
    assert tasks[0]() is None
    assert await in_a_task(ask()) == 1


class _Once:
    def __init__(self, loop: Any) -> None:
        self.loops = [loop]

    def __aiter__(self) -> Any:
        return self.loops.pop()


def _only(loop: Any) -> Any:
    """Return an iterable whose iterator is that loop, and not another one over the same source."""
    return _Once(loop)


async def test_a_loop_is_an_iterator(decoder: ModuleType) -> None:
    loop = decoder.Loop(Numbers(), Iteration())
    assert [await anext(loop) for _ in range(3)] == [0, 1, 2]
    async for number in loop:  # continues the iteration
        assert number == 3
        break


async def test_an_error_in_begin_reaches_the_reader(decoder: ModuleType) -> None:
    iteration = Iteration()

    def refuse() -> None:
        raise OSError("not you")

    iteration.begin = refuse  # type: ignore[method-assign]
    source = Numbers()
    with pytest.raises(OSError, match="not you"):
        async for _ in _only(decoder.Loop(source, iteration)):
            pass
    assert source.last == -1


async def test_an_error_in_a_report_does_not_replace_the_error_of_the_loop(
    decoder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: seen.append(what.exc_type))
    iteration = Iteration()
    iteration.on_exit = lambda reason: 1 / 0  # type: ignore[method-assign, assignment]
    iteration.again = lambda: iteration  # type: ignore[method-assign]
    await by_error_in_a_call(decoder.Loop(Numbers(), iteration))
    assert seen == [ZeroDivisionError]


async def test_a_source_must_be_an_async_iterator(decoder: ModuleType) -> None:
    with pytest.raises(TypeError, match="async iterator, not int"):
        decoder.Loop(3, Iteration())


async def test_a_cycle_through_the_source_is_collected(decoder: ModuleType) -> None:
    source = Numbers()
    source.loop = decoder.Loop(source, Iteration())  # type: ignore[attr-defined]
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None


def test_every_decoder_has_loop() -> None:
    for name in decoding.available():
        assert hasattr(decoding.load(name)[1], "Loop")
