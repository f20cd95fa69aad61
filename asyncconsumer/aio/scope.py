"""Tasks of an object that has an ``async with`` block of its own."""

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
    NEW = "not open yet: enter its `async with` block first"
    OPEN = "open"
    CLOSED = "closed: its `async with` block is over"


class Scope:
    """A TaskGroup that cancels its tasks at the end, and leaves the errors of the block alone.

    A task returns its ConsumerError, for `outcome` to raise where somebody waits; any other error
    is a mistake, and ends the block.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._state = _ScopeState.NEW
        self._tasks: set[asyncio.Task[Any]] = set()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        if self._state is not _ScopeState.NEW:
            raise ClosedError(f"{self._owner}: opened once already; make a new one")
        await self._group.__aenter__()
        self._state = _ScopeState.OPEN
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._state = _ScopeState.CLOSED
        for task in self._tasks:
            task.cancel()
        # the group would wrap the block's own error; only a cancellation is its business
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, where) if cancelled else (None, None, None)))

    @property
    def is_open(self) -> bool:
        """Whether the block is running."""
        return self._state is _ScopeState.OPEN

    @property
    def is_over(self) -> bool:
        """Whether the block has come to its end."""
        return self._state is _ScopeState.CLOSED

    def check_open(self) -> None:
        """Raise ClosedError outside of the block."""
        if self._state is not _ScopeState.OPEN:
            raise ClosedError(f"{self._owner}: {self._state.value}")

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run it until it is done or the block ends. It begins after this call has returned."""
        try:
            task = start_task(self._group, work, name)
        except RuntimeError as error:  # another task has failed, and the block is about to end
            raise ClosedError(f"{self._owner}: it is ending: {error}") from error
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def outcome(self, task: asyncio.Task[T | ConsumerError]) -> T:
        """What a task returned. Who gives up waiting does not end it for others."""
        await asyncio.wait({task})
        if task.cancelled():
            raise ClosedError(f"{self._owner}: closed meanwhile")
        if isinstance(result := task.result(), ConsumerError):
            raise copy.copy(result) from result  # tracebacks grow where an exception is raised
        return result
