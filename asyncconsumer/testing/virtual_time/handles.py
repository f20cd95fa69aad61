"""What a loop keeps for each callback: asyncio's handles, made in half the time.

A simulation makes two of them for every step of a task. Asyncio's own constructors spend most of
their time asking the loop whether it is in debug mode; where it is, asyncio's are used.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Call(asyncio.Handle):
    """A callback for the next round."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: "Sequence[Any]",
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class Timer(asyncio.TimerHandle):
    """A callback for a later time."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: "Sequence[Any]",
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._scheduled = True
        self._repr = None
        self._source_traceback = None
