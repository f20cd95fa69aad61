"""Settings of the Spark Python process that runs this code.

PySpark runs `gc.collect()` in its workers after each task and plan. Freezing the imported modules
saves about 50 ms of CPU per query.

Spark sends a task to a Python worker in several small segments. TCP holds back a small segment
until the previous one is acknowledged (Nagle). The receiver delays its acknowledgement by up to
40 ms, to send it together with data. A worker sends no data before it has received the whole task.
So TCP_QUICKACK lets tasks start up to 40 ms earlier.
"""

import contextlib
import gc
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Final

_WORKER_DAEMON: Final = "pyspark.daemon"  # the parent of workers, which run `gc.collect()`
STREAM_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that the driver's process for a streaming query runs."""
_OPEN_FILES: Final = Path("/proc/self/fd")
_frozen_modules = 0  # number of modules at the last freeze


def is_running(module: str) -> bool:
    """Return whether this process runs a module of pyspark, or has imported it."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return module in sys.modules or getattr(main, "name", None) == module


def freeze_imports() -> None:
    """Exclude all loaded modules from garbage collection.

    Do nothing outside of Spark's Python processes.
    """
    global _frozen_modules
    if len(sys.modules) > _frozen_modules and is_running(_WORKER_DAEMON):
        _frozen_modules = len(sys.modules)
        gc.freeze()


def enable_quickack() -> None:
    """Let all TCP sockets of this process acknowledge received segments at once. Linux only."""
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not _OPEN_FILES.exists():
        return
    for descriptor in [int(path.name) for path in _OPEN_FILES.iterdir()]:
        with contextlib.suppress(OSError):  # not TCP, or closed by now
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as duplicate:
                    duplicate.setsockopt(socket.IPPROTO_TCP, option, 1)
