"""Reading a socket without a task: half the cost of a small message of ``loop.sock_recv``."""

import asyncio
import socket
from collections.abc import Callable

from asyncconsumer.testing.proxy.faults import CHUNK, Ending


class Intake:
    """Reads a socket whenever something has come, up to its end. Starts paused."""

    def __init__(self, source: socket.socket, arrive: Callable[[bytes | Ending], None]) -> None:
        self._source = source
        self._arrive = arrive

    def resume(self) -> None:
        """Read on."""
        asyncio.get_running_loop().add_reader(self._source, self._read)

    def pause(self) -> None:
        """Leave what comes to the kernel, which holds a little and then stops the sender."""
        asyncio.get_running_loop().remove_reader(self._source)

    def _read(self) -> None:
        what: bytes | Ending
        try:
            what = self._source.recv(CHUNK) or Ending.FIN
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            what = Ending.RST
        if isinstance(what, Ending):
            self.pause()
        self._arrive(what)
