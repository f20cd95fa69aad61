"""Signals for an event loop, on systems that lack some of them or their handlers."""

import asyncio
import contextlib
import signal
from collections.abc import Callable


def hangup() -> signal.Signals | None:
    """SIGHUP; None where there is none, as on Windows, or where it is ignored, as nohup does."""
    number: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        return None
    return number


def ignore_hangup() -> None:
    """Ignore SIGHUP where there is one."""
    if (number := getattr(signal, "SIGHUP", None)) is not None:
        signal.signal(number, signal.SIG_IGN)


def handle(number: signal.Signals, callback: Callable[[], object]) -> None:
    """Call back in the running loop when the signal comes."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, callback)
    except NotImplementedError:  # the loops of Windows have no handlers
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))


def restore(number: signal.Signals) -> None:
    """Handle the signal by default again: it ends the program."""
    with contextlib.suppress(NotImplementedError):
        asyncio.get_running_loop().remove_signal_handler(number)
    signal.signal(number, signal.SIG_DFL)
