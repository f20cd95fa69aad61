"""For all tests."""

import signal
from pathlib import Path
from typing import Final

import pytest
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


# files that take minutes: the other processes go through all others meanwhile
_FIRST: Final = ("spark_source/test_source", "test_readme", "spark/", "spark_source/", "group/")


SLOW: Final = frozenset(
    line
    for line in Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: whoever has it last would be waited for."""
    for item in items:
        if item.nodeid.partition("[")[0] in SLOW:
            item.add_marker(pytest.mark.slow)

    def place(item: pytest.Item) -> int:
        within = item.nodeid.removeprefix("tests/")
        return next((at for at, name in enumerate(_FIRST) if within.startswith(name)), len(_FIRST))

    items.sort(key=place)
