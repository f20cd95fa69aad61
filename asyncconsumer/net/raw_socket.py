"""Blocking reads from the socket of an asyncio transport."""

import asyncio
import os
import select
from typing import Final

_WAIT_MS: Final = 5  # wait for more bytes of a response


class RawSocket:
    """The socket of an open transport, from which this object and the transport read in turns."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        # With TLS the received bytes are encrypted.
        is_plain = sock is not None and transport.get_extra_info("ssl_object") is None
        # With -1, reads fail and `read_into` returns 0.
        self._descriptor: int = sock.fileno() if is_plain else -1

    def read_into(self, buffer: memoryview) -> int:
        """Read bytes into `buffer`. Return the number of bytes.

        Return 0 if no byte arrives for 5 ms, after the end of the stream, after an error, and
        always with TLS. The caller then lets the event loop read.
        """
        try:
            try:
                return os.readv(self._descriptor, [buffer])
            except BlockingIOError:
                return os.readv(self._descriptor, [buffer]) if self._is_readable() else 0
        except OSError:
            return 0

    def _is_readable(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(_WAIT_MS))
