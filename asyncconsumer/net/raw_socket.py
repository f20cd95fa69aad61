"""Blocking reads from the socket of an asyncio transport."""

import asyncio
import os
import select
from typing import Final

_NEXT_PIECE_MS: Final = 5  # wait for more bytes of a response


class RawSocket:
    """The socket of an open transport. Both may read from it, in turns."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        one = transport.get_extra_info("socket")
        # with TLS the received bytes are encrypted
        is_plain = one is not None and transport.get_extra_info("ssl_object") is None
        self._number: int = one.fileno() if is_plain else -1  # -1: reads fail, and `take` returns 0

    def take(self, room: memoryview) -> int:
        """Read into `room`, and return the number of bytes.

        Return 0 if none arrived for 5 ms, or if the event loop has to handle the socket.
        """
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
