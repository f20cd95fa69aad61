"""The iterator of one `async for`, in pure Python. It reports how the loop was left."""

import asyncio
import inspect
import sys
import weakref
from collections.abc import Awaitable
from opcode import opmap
from types import FrameType
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, final

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Exit = Literal["break", "error", "unknown"]
"""The exit of a loop: by `break` or `return`, by an exception, or in an unknown way."""

_frame: Final = sys._getframe  # noqa: SLF001 - finds the frame of the caller
_GET_ANEXT: Final = opmap["GET_ANEXT"]
_POP_TOP: Final = opmap["POP_TOP"]


class Nexts(Protocol[T_co]):
    """An async iterator, as far as a `Loop` needs it."""

    def __anext__(self) -> Awaitable[T_co]:
        """Return an awaitable for the next item."""


class IterationObserver(Protocol):
    """An object to which a `Loop` reports its start and its end."""

    loop: "weakref.ref[Any] | None"

    def begin(self) -> None:
        """Prepare for the first item that a loop requests.

        This is called again after `Loop.begin_again`. If several tasks may request items, it is
        also called whenever another task requests one.
        """

    def on_exit(self, reason: Exit) -> None:
        """Handle the end of a loop that has requested an item.

        This is called once. `reason` says how the loop was left.
        """

    def again(self) -> "IterationObserver":
        """Return an observer for another loop over the same iterator."""


@final
class Loop(Generic[T]):
    """The iterator of one ``async for`` statement, or of direct ``anext`` calls.

    The interpreter keeps the iterator of a statement only on the stack of its frame. If such an
    iterator is deallocated while that frame executes POP_TOP, the statement was left by ``break``
    or ``return``. In all other cases an error or an unknown exit is reported.
    """

    __slots__ = (
        "__weakref__",
        "_begun",
        "_frame",
        "_generator",
        "_iteration",
        "_ready",
        "_source",
        "_task",
    )

    def __init__(self, source: Nexts[T], iteration: IterationObserver) -> None:
        self._begun = False
        if not hasattr(type(source), "__anext__"):
            raise TypeError(f"source must be an async iterator, not {type(source).__name__}")
        self._source = source
        self._iteration = iteration
        self._ready = False  # the next item needs no call of `begin`
        self._frame = 0  # the id of the statement's frame; holding the frame would keep it alive
        self._generator = False
        # the task of the last request, if other tasks may request items
        self._task: weakref.ref[Any] | None = None
        iteration.loop = weakref.ref(self)

    def __aiter__(self) -> "Loop[T]":
        return Loop(self._source, self._iteration.again())

    def __anext__(self) -> Awaitable[T]:
        if not self._ready and not self._is_same_task():
            self._begin(_frame(1))
        return self._source.__anext__()

    def begin_again(self) -> None:
        """Require a call of the observer's `begin` before the next item.

        The owner of the iterator calls this when another loop has read from it.
        """
        self._ready = False
        self._task = None

    def _is_same_task(self) -> bool:
        """Return whether the current task also made the last request.

        In that case `begin` of the observer need not be called again, because it depends only on
        the task.
        """
        return self._task is not None and self._task() is _current_task()

    def _begin(self, frame: FrameType) -> None:
        if not self._begun:
            self._begun = True
            if _instruction(frame) == _GET_ANEXT:
                self._frame = id(frame)
                self._generator = bool(frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR)
        self._iteration.begin()
        self._ready = bool(self._frame) and not self._generator
        if not self._ready:
            task = _current_task()
            self._task = None if task is None else weakref.ref(task)

    def __del__(self) -> None:
        if self._begun:
            self._iteration.on_exit(self._exit(_frame(0).f_back))

    def _exit(self, frame: FrameType | None) -> Exit:
        if not self._frame or frame is None:
            return "unknown"
        if id(frame) == self._frame and _instruction(frame) == _POP_TOP:
            return "break"
        return "unknown" if self._generator else "error"


def _current_task() -> "asyncio.Task[Any] | None":
    """Return the current task, or None outside of an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _instruction(frame: FrameType) -> int:
    return frame.f_code.co_code[frame.f_lasti]
