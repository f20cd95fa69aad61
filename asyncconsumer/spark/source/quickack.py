"""Tasks that start without a wait of 40 ms.

Spark sends a task to a Python worker in several small pieces. TCP keeps a small piece back until
the one before is acknowledged (Nagle), and a receiver puts acknowledging off for 40 ms, hoping to
have something to send along. Here nothing is sent before the whole task is there.
"""

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

_OPEN: Final = Path("/proc/self/fd")


def acknowledge_at_once() -> None:
    """Acknowledge what came over this process's sockets; does nothing where Linux is not."""
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not _OPEN.exists():
        return
    for number in [int(path.name) for path in _OPEN.iterdir()]:
        with contextlib.suppress(OSError):  # it is not TCP's, or closed by now
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as one:
                    one.setsockopt(socket.IPPROTO_TCP, option, 1)
