"""TCP_QUICKACK for Spark tasks, which otherwise start 40 ms late.

Spark sends a task to a Python worker in several small segments. TCP holds back a small segment
until the previous one is acknowledged (Nagle). The receiver delays its acknowledgement by up to 40
ms, to send it with data. A worker sends no data before it has received the whole task.
"""

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

_OPEN: Final = Path("/proc/self/fd")


def acknowledge_at_once() -> None:
    """Acknowledge received segments on all sockets of this process. Does nothing but on Linux."""
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not _OPEN.exists():
        return
    for number in [int(path.name) for path in _OPEN.iterdir()]:
        with contextlib.suppress(OSError):  # not TCP, or closed by now
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as one:
                    one.setsockopt(socket.IPPROTO_TCP, option, 1)
