"""Handlers for the signals that stop a process, SIGTERM and SIGINT."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_log: Final = logging.getLogger(__name__)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def signals(callback: Callable[[], None]) -> Iterator[None]:
    """Return a context manager that calls `callback` for each SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    installed = []
    try:
        for each in _SIGNALS:
            loop.add_signal_handler(each, callback)
            installed.append(each)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        _log.warning(
            "SIGTERM and SIGINT do not stop the app: this thread or event loop cannot handle "
            "signals: %s",
            error,
        )
    try:
        yield
    finally:
        for each in installed:
            loop.remove_signal_handler(each)
