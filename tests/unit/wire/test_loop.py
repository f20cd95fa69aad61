"""How an `async for` was left."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, Self

import pytest

from asyncconsumer.wire import accel

pytestmark = pytest.mark.fast
_, compiled = accel.load("compiled" if "compiled" in accel.available() else None)
only_compiled = pytest.mark.skipif(accel.name == "pure", reason="Python code cannot see errors")


class Numbers:
    """0, 1, 2, for ever."""

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


async def left_by_break(loop: Any) -> None:
    async for _ in loop:
        break


async def left_by_return(loop: Any) -> int:
    async for number in loop:
        return int(number)
    return -1


async def left_by_error(loop: Any) -> None:
    try:
        async for number in loop:
            number / 0
    except ZeroDivisionError:
        pass


async def left_by_error_in_a_call(loop: Any) -> None:
    async def inner() -> None:
        async for number in loop:
            raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        await inner()


async def left_by_a_timeout(loop: Any) -> None:
    async def inner() -> None:
        async with asyncio.timeout(0.01):
            async for _ in loop:
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await inner()


async def left_by_an_error_of_the_source(loop: Any) -> None:
    with pytest.raises(KeyError):
        async for _ in loop:
            pass


async def not_left(loop: Any) -> None:
    await left_by_an_error_of_the_source(loop)
    async for _ in loop:
        pass


@only_compiled
@pytest.mark.parametrize(
    ("leave", "failed"),
    [
        (left_by_break, 0),
        (left_by_return, 0),
        (left_by_error, 1),
        (left_by_error_in_a_call, 1),
        (left_by_a_timeout, 1),
        (left_by_an_error_of_the_source, 1),
        (not_left, 1),
    ],
)
async def test_an_error_is_told(leave: Callable[[Any], Any], failed: int) -> None:
    told: list[int] = []
    source = Numbers()
    loop = compiled.Loop(source, lambda: told.append(source.last))
    await leave(loop)
    assert len(told) == failed


async def test_it_iterates(decoder: ModuleType) -> None:
    loop = decoder.Loop(Numbers(), list)
    assert [await anext(loop) for _ in range(3)] == [0, 1, 2]
    async for number in loop:  # goes on
        assert number == 3
        break


async def test_what_goes_wrong_in_telling_hides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: seen.append(what.exc_type))
    await left_by_error_in_a_call(compiled.Loop(Numbers(), lambda: 1 / 0))
    assert seen == ([ZeroDivisionError] if accel.name == "compiled" else [])


async def test_a_source_must_be_one(decoder: ModuleType) -> None:
    with pytest.raises(TypeError, match="async iterator, not int"):
        decoder.Loop(3, list)


async def test_it_is_garbage_with_what_it_belongs_to(decoder: ModuleType) -> None:
    source = Numbers()
    source.loop = decoder.Loop(source, list)  # type: ignore[attr-defined]
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None
