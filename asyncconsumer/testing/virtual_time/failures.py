"""How a simulation fails, and the words it finds for it: who waits, and where."""

import asyncio
import gc
import inspect
from collections.abc import Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

_ASYNCIO: Final = str(Path(asyncio.__file__).parent)


class Deadlock(AssertionError):
    """Every task waits and no timer is set: nothing can ever happen again."""


class Livelock(AssertionError):
    """Callbacks run and run, and time stands still: somebody spins."""


class VirtualTimeout(AssertionError):
    """The simulation is not over at the virtual time it was limited to."""


class LeftoverTasks(AssertionError):
    """The main coroutine returned while tasks of its simulation were still running."""


class UnhandledError(AssertionError):
    """An exception reached nobody: a task that failed unasked, or a callback that raised."""


class SimulationError(NotImplementedError):
    """The code reached for the outside world, which a simulation does not have."""


def describe(tasks: Collection["asyncio.Task[Any]"]) -> str:
    """Each task on a line of its own: its name and where it stands."""
    if not tasks:
        return "  (no task is pending)"
    return "\n".join(f"  {task.get_name()!r} {whereabouts(task)}" for task in tasks)


def whereabouts(task: "asyncio.Task[Any]") -> str:
    """Where `task` stands: the innermost line that is not asyncio's, then asyncio's."""
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
    """The frames of everything that `awaited` waits through, outermost first."""
    while awaited is not None:
        if inspect.iscoroutine(awaited):
            frame, inner = awaited.cr_frame, awaited.cr_await
        elif inspect.isgenerator(awaited):
            frame, inner = awaited.gi_frame, awaited.gi_yieldfrom
        elif inspect.isasyncgen(awaited):
            frame, inner = awaited.ag_frame, awaited.ag_await
        else:
            # `async for` waits on an object that does not name its generator; the collector knows
            inside = (part for part in gc.get_referents(awaited) if inspect.isasyncgen(part))
            frame, inner = None, next(inside, None)
        if frame is not None:
            yield frame
        awaited = inner
