"""Signal handling for event loops, also on systems without SIGHUP or loop signal handlers."""

import asyncio
import contextlib
import signal
from collections.abc import Callable


def hangup() -> signal.Signals | None:
    """Return SIGHUP, or None if it is ignored, as under nohup, or does not exist, as on Windows."""
    number: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        return None
    return number


def ignore_hangup() -> None:
    """Ignore SIGHUP on systems that have it."""
    if (number := getattr(signal, "SIGHUP", None)) is not None:
        signal.signal(number, signal.SIG_IGN)


def handle(number: signal.Signals, callback: Callable[[], object]) -> None:
    """Call `callback` in the running loop each time when the signal `number` arrives."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, callback)
    except NotImplementedError:  # loops on Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))


def restore(number: signal.Signals) -> None:
    """Restore the default action of the signal, which ends the process."""
    with contextlib.suppress(NotImplementedError):
        asyncio.get_running_loop().remove_signal_handler(number)
    signal.signal(number, signal.SIG_DFL)
