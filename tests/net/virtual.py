"""Virtual time for tests without sockets: the clock jumps to the next timer."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Jumping(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("deadlock: everything waits and no timer is set")
        self.now += max(timeout, 0.0)
        return []


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in virtual time; hours pass at once."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        unhandled: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: unhandled.append(context))
            runner.run(test(*args, **kwargs))
        assert unhandled == []

    return run


def timers() -> list[asyncio.TimerHandle]:
    """The timers that are set on the running loop."""
    loop: Any = asyncio.get_running_loop()
    return [timer for timer in loop._scheduled if not timer.cancelled()]
