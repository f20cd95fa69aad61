"""Callback handles for simulations that are created in half the time of asyncio's handles.

A simulation creates two handles for each step of a task. The constructors of asyncio's handles
spend most of their time on the check for debug mode. In debug mode asyncio's handles are used.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Call(asyncio.Handle):
    """A handle of a callback that runs in the next round (iteration) of the event loop."""

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
    """A handle of a callback that runs at a later virtual time."""

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
