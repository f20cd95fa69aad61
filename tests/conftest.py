"""For all tests."""

import signal

from hypothesis import HealthCheck, settings

# how long an example takes says more about who else uses the machine than about our code
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_configure() -> None:
    """Run in the background, or by nohup, as in the foreground.

    There interrupts and hangups are ignored, and programs that tests start would inherit that; what
    is handled, be it by doing nothing, they do not inherit.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
