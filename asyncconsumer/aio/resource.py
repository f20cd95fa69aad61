"""A base class for objects that are open within an ``async with`` block."""

import abc
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self


class AsyncResource(abc.ABC):
    """An object that is open within its ``async with`` block.

    A subclass implements `_open`, which registers every part that must be closed on an exit stack.
    The end of the block closes these parts in reverse order. If opening fails or is cancelled, the
    parts that were opened are closed again.
    """

    _stack: AsyncExitStack

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._before_close(error)
        finally:
            await self._stack.__aexit__(kind, error, traceback)
        if error is None:
            self._after_close()

    @abc.abstractmethod
    async def _open(self, stack: AsyncExitStack) -> None:
        """Open this object. Register every part that must be closed on `stack`."""

    async def _before_close(self, error: BaseException | None) -> None:  # noqa: B027 - optional
        """Do work at the end of the block that needs all parts open, such as a final commit.

        `error` is the exception that ended the block, or None. Afterwards all parts are closed,
        even if this method raises an exception.
        """

    def _after_close(self) -> None:  # noqa: B027 - optional
        """Raise the error of a background task, if one has failed.

        This is called after all parts were closed, and only if the block raised no error.
        """
