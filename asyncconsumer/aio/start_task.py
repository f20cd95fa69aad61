"""The creation of tasks with the same order of execution on every event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def start_task(
    owner: asyncio.TaskGroup | asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    name: str | None = None,
) -> asyncio.Task[T]:
    """Create a task whose first step happens after this call has returned.

    The caller can therefore store the task before `work` needs the stored value. An eager task
    factory would start `work`, and possibly end it, within `create_task`.

    If the task cannot be created, `work` is closed and the `RuntimeError` is raised.
    """
    returned: asyncio.Event | None = None
    coroutine = work
    if asyncio.get_running_loop().get_task_factory() is not None:  # the task factory may be eager
        returned = asyncio.Event()
        coroutine = _after(returned, work)
    try:
        task = owner.create_task(coroutine, name=name)
    except RuntimeError:  # the TaskGroup is ending, or the loop is closed
        coroutine.close()
        work.close()
        raise
    if returned is not None:
        # a task that is cancelled before its first step never awaits `work`
        task.add_done_callback(lambda _: work.close())
        returned.set()
    return task


async def _after(returned: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    # without an eager factory the event is already set, so this wait does not suspend
    await returned.wait()
    return await work
