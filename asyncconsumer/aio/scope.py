"""The background tasks of an object with an ``async with`` block."""

import asyncio
import copy
import enum
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from asyncconsumer.aio.start_task import start_task
from asyncconsumer.errors import ClosedError, ConsumerError

T = TypeVar("T")


class _ScopeState(enum.Enum):
    NEW = "it is not open yet; enter its `async with` block first"
    OPEN = "open"
    CLOSED = "it is closed, because its `async with` block is over"


class Scope:
    """A task group that cancels its tasks at the end, and does not wrap errors of the block.

    A task may return a `ConsumerError`, which does not end the block. `outcome` raises it in the
    caller that waits for the task. Any exception that a task raises ends the block.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._state = _ScopeState.NEW
        self._tasks: set[asyncio.Task[Any]] = set()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        self.check_new()
        await self._group.__aenter__()
        self._state = _ScopeState.OPEN
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._state = _ScopeState.CLOSED
        for task in self._tasks:
            task.cancel()
        # the group would wrap the block's own error, so it gets cancellations only
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._group.__aexit__(
            *((kind, error, traceback) if cancelled else (None, None, None))
        )

    @property
    def is_open(self) -> bool:
        """Return whether the block was entered and has not ended."""
        return self._state is _ScopeState.OPEN

    @property
    def is_over(self) -> bool:
        """Return whether the block has ended."""
        return self._state is _ScopeState.CLOSED

    def check_new(self) -> None:
        """Raise `ClosedError` if the block was entered before."""
        if self._state is not _ScopeState.NEW:
            raise ClosedError(f"{self._owner}: it was opened before; create a new one")

    def check_open(self) -> None:
        """Raise `ClosedError` if the block was not entered yet or has ended."""
        if self._state is not _ScopeState.OPEN:
            raise ClosedError(f"{self._owner}: {self._state.value}")

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run the coroutine `work` as a task until it is done or the block ends.

        The first step of the task runs after this call has returned.
        """
        try:
            task = start_task(self._group, work, name)
        except RuntimeError as error:  # another task has failed and the block is about to end
            raise ClosedError(f"{self._owner}: it is being closed: {error}") from error
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def outcome(self, task: asyncio.Task[T | ConsumerError]) -> T:
        """Return the result of a task. If the result is a `ConsumerError`, raise it.

        Raise `ClosedError` if the end of the block cancelled the task. Cancelling the wait does not
        cancel the task.
        """
        await asyncio.wait({task})
        if task.cancelled():
            raise ClosedError(f"{self._owner}: it was closed meanwhile")
        if isinstance(result := task.result(), ConsumerError):
            raise copy.copy(result) from result  # raising an exception extends its traceback
        return result
