"""A socket read past its transport, by who has nothing else to do than to wait for it."""

import asyncio
import os
import select
from typing import Final

_NEXT_PIECE_MS: Final = 5  # that more of an answer may take to come


class RawSocket:
    """The socket of a transport, while that is open. Both may read from it, in turns."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        one = transport.get_extra_info("socket")
        # with TLS, what comes is not what was sent
        is_plain = one is not None and transport.get_extra_info("ssl_object") is None
        self._number: int = one.fileno() if is_plain else -1  # of which nothing ever comes

    def take(self, room: memoryview) -> int:
        """How many bytes came into `room`; 0 if none did for a while, or the loop is to look."""
        try:
            try:
                return os.readv(self._number, [room])
            except BlockingIOError:
                return os.readv(self._number, [room]) if self._comes() else 0
        except OSError:
            return 0

    def _comes(self) -> bool:
        poll = select.poll()
        poll.register(self._number, select.POLLIN)
        return bool(poll.poll(_NEXT_PIECE_MS))
