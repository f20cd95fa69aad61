"""The send buffer: a limit for the bytes of records that wait to be written."""

import asyncio
from collections import deque
from math import inf
from typing import Final

from asyncconsumer.errors import ClosedError

_CLOSED: Final = inf


class SendBuffer:
    """The number of bytes of unwritten records, with a limit.

    Callers that exceed the limit wait for room, and continue in the order of their calls. A closed
    buffer counts as full, so that callers need only one check.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.used: float = _CLOSED

    @property
    def is_full(self) -> bool:
        """Whether the next record must wait, for room or for callers that wait already."""
        return self.used >= self._limit or bool(self._waiting)

    def open(self) -> None:
        """Accept records from now on."""
        self.used = 0

    def close(self) -> None:
        """Accept no more records. Waiting callers get ClosedError."""
        self.used = _CLOSED
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(_closed())

    def free(self, size: int) -> None:
        """Count `size` bytes as free again, because their records were written or have failed."""
        self.used -= size
        self._wake_first()

    async def wait_room(self) -> None:
        """Wait until a record may be added. Raise ClosedError if the producer is not open."""
        if self.used == _CLOSED:
            raise _closed()
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)
            # the caller adds its record before the next one runs
            asyncio.get_running_loop().call_soon(self._wake_first)

    def _wake_first(self) -> None:
        if self._waiting and self.used < self._limit and not self._waiting[0].done():
            self._waiting.popleft().set_result(None)


def _closed() -> ClosedError:
    return ClosedError("the producer is not open: use it within its `async with` block")
