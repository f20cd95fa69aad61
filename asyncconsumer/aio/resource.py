"""A base class for objects that are used in an ``async with`` block."""

import abc
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self


class AsyncResource(abc.ABC):
    """An object that is open for its ``async with`` block.

    A subclass implements `_open`, which registers on an exit stack everything that the end of the
    block must close. If opening fails or is cancelled, the parts that were opened are closed again.
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
        """Open this object. Register on `stack` everything that the end of the block must close."""

    async def _before_close(self, error: BaseException | None) -> None:  # noqa: B027 - optional
        """Do the work at the end of the block that needs everything open, such as final commits.

        `error` is the exception that ended the block, or None. Everything is closed afterwards,
        even if this method fails.
        """

    def _after_close(self) -> None:  # noqa: B027 - optional
        """Raise the error of a background task. This is called if the block raised no error."""
