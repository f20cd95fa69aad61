"""For all tests."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import uvloop
from hypothesis import HealthCheck, settings

# the duration of an example depends more on other processes than on the code under test
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


EAGER: Final[Any] = getattr(asyncio, "eager_task_factory", None)  # since Python 3.12


LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]


def _eager(new_loop: LoopFactory) -> asyncio.AbstractEventLoop:
    loop = new_loop()
    loop.set_task_factory(EAGER)
    return loop


LOOPS: Final[Mapping[str, LoopFactory]] = {
    "asyncio": asyncio.new_event_loop,
    "asyncio-eager": lambda: _eager(asyncio.new_event_loop),
    "uvloop": uvloop.new_event_loop,
    "uvloop-eager": lambda: _eager(uvloop.new_event_loop),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loop",
        choices=list(LOOPS),
        default="asyncio",
        help="the event loop of async tests, with eager tasks or without; tests that make a loop "
        "of their own, and those on virtual time, keep that",
    )


class OtherLoop:
    """A plugin that has pytest-asyncio make another loop; without it, it makes asyncio's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def pytest_asyncio_loop_factories(self) -> Mapping[str, LoopFactory]:
        return {self._name: LOOPS[self._name]}


def pytest_configure(config: pytest.Config) -> None:
    """Run in the background, or by nohup, as in the foreground.

    There interrupts and hangups are ignored, and programs that tests start would inherit that; what
    is handled, be it by doing nothing, they do not inherit.
    """
    loop = config.getoption("loop")
    if loop.endswith("eager") and EAGER is None:
        raise pytest.UsageError("--loop: eager tasks need Python 3.12 or newer")
    if loop == "uvloop-eager" and (3, 13) <= sys.version_info < (3, 13, 3):
        raise pytest.UsageError("--loop: uvloop's eager tasks need Python 3.12, or 3.13.3 or newer")
    if loop != "asyncio" and not hasattr(config.hook, "pytest_asyncio_loop_factories"):
        raise pytest.UsageError("--loop: other loops need pytest-asyncio 1.4 or newer")
    if loop != "asyncio":
        config.pluginmanager.register(OtherLoop(loop))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


# files that take minutes: the other processes go through all others meanwhile
_FIRST: Final = (
    "integration/spark/source/test_source",
    "project/test_readme",
    "integration/spark/",
    "spark/",
    "integration/group/",
    "group/",
)


SLOW: Final = frozenset(
    line
    for line in Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long text by its length. Older versions of pytest put all of it into the test's name.

    The name goes into an environment variable, whose size is limited.
    """
    if isinstance(val, str | bytes) and len(val) > 200:
        return f"{argname} of {len(val)}"
    return None


def pytest_collection_finish() -> None:
    """Keep the collected tests and imported modules out of later garbage collections.

    They are millions of objects that live until the end. Without this, each full collection visits
    all of them, which takes longer than most tests.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first, so that no worker starts one when the others are done."""
    for item in items:
        if item.nodeid.partition("[")[0] in SLOW:
            item.add_marker(pytest.mark.slow)

    def place(item: pytest.Item) -> int:
        within = item.nodeid.removeprefix("tests/")
        return next(
            (offset for offset, name in enumerate(_FIRST) if within.startswith(name)), len(_FIRST)
        )

    items.sort(key=place)
