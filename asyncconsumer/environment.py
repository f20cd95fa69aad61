"""The injected dependencies of a consumer: transports, random numbers and clocks."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeVar

from asyncconsumer.aio.clock import wall_clock_ms
from asyncconsumer.aio.suspensions import ClockOffsets, system_offsets
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.pool import BrokerOpener as BrokerOpener
from asyncconsumer.zookeeper.transport import TransportOpener as ZooKeeperOpener
from asyncconsumer.zookeeper.transport import open_transport

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The transports, random numbers and clocks of a consumer.

    The defaults are the real ones. Simulations replace them.
    """

    open_broker: BrokerOpener = open_connection
    open_zookeeper: ZooKeeperOpener = open_transport
    randomness: Random = field(default_factory=Random)  # for jitter and shuffling
    clock: Callable[[], float] | None = None  # if the loop does not use the system's clock
    now_ms: Callable[[], int] = wall_clock_ms
    clock_offsets: Callable[[], ClockOffsets] = (
        system_offsets  # of clocks that count suspended time
    )

    @classmethod
    def current(cls) -> "Environment":
        """Return the environment for a new object.

        It is the environment whose `in_use` block surrounds the call, otherwise one with the
        defaults.
        """
        return _CURRENT.get() or cls()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Return a context manager within which new objects use this environment.

        This applies to objects created by the current task, and by tasks that are started in the
        block.
        """
        before = _CURRENT.get()
        _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.set(before)  # no `reset`, because the block may end in another context

    def run(self, function: Callable[..., T], *args: object, **options: object) -> T:
        """Return the result of `function`. Objects that it creates use this environment."""
        with self.in_use():
            return function(*args, **options)

    def virtual_clock(self) -> Callable[[], float] | None:
        """Return the virtual clock of the event loop, or None if the loop uses real time.

        With a virtual clock, no thread may be started, because threads run in real time.
        """
        if self.clock is not None:
            return self.clock
        loop = asyncio.get_running_loop()
        return loop.time if getattr(loop, "virtual_time", False) else None


_CURRENT: Final[ContextVar[Environment | None]] = ContextVar("environment", default=None)
