"""Ends an ``async with`` block from elsewhere, with an error of its own, as a TaskGroup does."""

import asyncio
from typing import Any


class BlockInterrupt:
    """Cancels the task that is in the block, once; at its end the cancellation is an error."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.happened = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None  # that is in the block
        self._cancelling = 0  # times, when the block began
        self._cancelled = False

    def watch(self) -> None:
        """The block of this task begins."""
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()

    def interrupt(self, error: Exception) -> None:
        """End the block; harmless when that was done, or it is over."""
        if self.error is None:
            self.error = error
            self.happened.set()
            if self._task is not None:
                self._cancelled = True
                self._task.cancel()

    async def over(self, raised: BaseException | None) -> bool:
        """The block is over; whether what it raised is nothing but our cancellation."""
        task, self._task = self._task, None
        if task is None or not self._cancelled:
            return False
        if raised is None:  # it came to its end before it noticed
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                raised = error
        alone = task.uncancel() <= self._cancelling
        return alone and isinstance(raised, asyncio.CancelledError)
