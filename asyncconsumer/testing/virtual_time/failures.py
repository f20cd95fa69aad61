"""The errors that end a simulation, and descriptions of waiting tasks."""

import asyncio
import gc
import inspect
from collections.abc import Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

_ASYNCIO: Final = str(Path(asyncio.__file__).parent)


class Deadlock(AssertionError):
    """All tasks of a simulation wait, and no timer is set that could wake one of them."""


class Livelock(AssertionError):
    """Too many callbacks of a simulation ran while its virtual time did not advance."""


class VirtualTimeout(AssertionError):
    """The simulation did not end within its limit of virtual time."""


class LeftoverTasks(AssertionError):
    """The main coroutine returned while tasks of its simulation were still running."""


class UnhandledError(AssertionError):
    """An exception of a task or of a callback was never retrieved."""


class SimulationError(NotImplementedError):
    """The code used a resource that a simulation does not have."""


def describe(tasks: Collection["asyncio.Task[Any]"]) -> str:
    """Return a line of text for each task: its name and the source line at which it waits."""
    if not tasks:
        return "  (no task is pending)"
    return "\n".join(f"  {task.get_name()!r} {whereabouts(task)}" for task in tasks)


def whereabouts(task: "asyncio.Task[Any]") -> str:
    """Return the source lines at which `task` waits, as text.

    They are the innermost line outside of asyncio, and the line within asyncio.
    """
    coro = task.get_coro()
    frames = list(_frames(coro))
    if not frames:
        return f"is at an unknown place, in {coro!r}"
    if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
        return f"has not started: {_line(frames[0])}"
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith(_ASYNCIO)]
    place = own[-1] if own else frames[0]
    within = "" if place is frames[-1] else f", within {_line(frames[-1])}"
    return f"waits at {_line(place)}{within}"


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"


def _frames(awaited: object) -> Iterator[FrameType]:
    """Yield the frame of `awaited`, then that of the coroutine that it awaits, and so on."""
    while awaited is not None:
        if inspect.iscoroutine(awaited):
            frame, inner = awaited.cr_frame, awaited.cr_await
        elif inspect.isgenerator(awaited):
            frame, inner = awaited.gi_frame, awaited.gi_yieldfrom
        elif inspect.isasyncgen(awaited):
            frame, inner = awaited.ag_frame, awaited.ag_await
        else:
            # `async for` awaits an object without a reference to its generator; gc finds it
            inside = (part for part in gc.get_referents(awaited) if inspect.isasyncgen(part))
            frame, inner = None, next(inside, None)
        if frame is not None:
            yield frame
        awaited = inner
