"""For all tests."""

import signal


def pytest_configure() -> None:
    """A shell that runs us in the background has interrupts ignored, and programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
