"""For all tests."""

import signal

from hypothesis import HealthCheck, settings

# how long an example takes says more about who else uses the machine than about our code
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_configure() -> None:
    """A shell that runs us in the background has interrupts ignored, and programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
