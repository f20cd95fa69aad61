"""The interruption of an ``async with`` block by an error of another task, as in a TaskGroup."""

import asyncio
from typing import Any


class BlockInterrupt:
    """An error of another task that interrupts an ``async with`` block.

    The block's task is cancelled once. At the end of the block, its owner raises `error` instead of
    the cancellation.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.happened = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None  # the task in the block
        self._cancelling = 0  # the value of `cancelling()` when the block began
        self._cancelled = False

    def watch(self) -> None:
        """Register the current task as the task that runs the block."""
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()

    def interrupt(self, error: Exception) -> None:
        """Cancel the block because of `error`. Only the first call has an effect.

        After the end of the block, `error` is kept, but nothing is cancelled.
        """
        if self.error is None:
            self.error = error
            self.happened.set()
            if self._task is not None:
                self._cancelled = True
                self._task.cancel()

    async def over(self, raised: BaseException | None) -> bool:
        """Note that the block has ended with the exception `raised`, or with None.

        Return True if `raised` is only the cancellation by `interrupt`, so that the caller can
        replace it.
        """
        task, self._task = self._task, None
        if task is None or not self._cancelled:
            return False
        if raised is None:  # the block ended before the cancellation was raised
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                raised = error
        alone = task.uncancel() <= self._cancelling
        return alone and isinstance(raised, asyncio.CancelledError)
