"""Handlers for the signals that stop a process, SIGTERM and SIGINT."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_log: Final = logging.getLogger(__name__)
_MEANT: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def signals(asked: Callable[[], None]) -> Iterator[None]:
    """Call `asked` for each SIGTERM or SIGINT while the block lasts."""
    loop = asyncio.get_running_loop()
    ours = []
    try:
        for each in _MEANT:
            loop.add_signal_handler(each, asked)
            ours.append(each)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        _log.warning("signals are not heard here, only by a main thread: %s", error)
    try:
        yield
    finally:
        for each in ours:
            loop.remove_signal_handler(each)
