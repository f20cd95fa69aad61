"""An asyncio event loop with virtual time, whose order of callbacks is drawn from a seed.

Time does not advance while callbacks run, and jumps to the next timer if no callback is ready.
There are no sockets, threads or signals. So the seed alone decides the order. If no callback is
ready and no timer is set, the program is in a deadlock. `order.py` defines the orders that a seed
may select.

**What a seed cannot replay**: an order that the code takes from wall clock time, from another
random source, from the moment when the garbage collector runs a finalizer, or from a set of strings
or of objects that are hashed by their address. Tasks of this loop are hashed by their number.
"""

import asyncio
import collections
import itertools
import math
import random
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.virtual_time.failures import (
    Deadlock,
    Livelock,
    SimulationError,
    VirtualTimeout,
    describe,
    whereabouts,
)
from asyncconsumer.testing.virtual_time.handles import Call, Timer
from asyncconsumer.testing.virtual_time.order import Timers, arrange

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Awaited = Generator[Any, None, T] | Coroutine[Any, Any, T]


class _Task(asyncio.Task[T]):
    """A task with the same hash in every replay.

    A TaskGroup cancels its children in the order of a set, which depends on their hashes. The
    default hashes are addresses, which do not depend on the seed.
    """

    def __init__(
        self, number: int, coro: Awaited[T], loop: "SimLoop", name: str, context: Context | None
    ) -> None:
        self._number = number  # set first, because asyncio hashes the task in its __init__
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class _LiveTasks:
    """The tasks that are not done, or whose exception was not retrieved.

    The list keeps references to the tasks, which asyncio does not. Otherwise the garbage collector
    could remove a waiting task at a moment that does not depend on the seed.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self._numbers = itertools.count(1)
        self._tidy_at = 64

    def next_number(self) -> int:
        return next(self._numbers)

    def add(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.append(task)
        if len(self._tasks) >= self._tidy_at:
            self._tasks = [task for task in self._tasks if not task.done() or self._unseen(task)]
            self._tidy_at = 2 * len(self._tasks) + 64

    def pending(self) -> list["asyncio.Task[Any]"]:
        return [task for task in self._tasks if not task.done()]

    def unseen(self) -> list["asyncio.Task[Any]"]:
        return [task for task in self._tasks if self._unseen(task)]

    def clear(self) -> None:
        self._tasks.clear()

    @staticmethod
    def _unseen(task: "asyncio.Task[Any]") -> bool:
        # the flag of asyncio for the log "exception was never retrieved"
        return bool(getattr(task, "_log_traceback", False))


class _CallbackLimit:
    """A limit of the callbacks that may run at one virtual time, to detect an endless loop."""

    _SAMPLE: Final = 1000

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.remaining = limit
        self._ran: collections.Counter[str] = collections.Counter()
        self._ran_at = 0.0

    def spend(self, ready: list[asyncio.Handle], now: float) -> None:
        """Count the callbacks in `ready`, which will run next at the virtual time `now`.

        After the limit is reached, collect the next 1000 callbacks. Then raise Livelock with the
        most frequent ones.
        """
        if self.remaining >= len(ready):
            self.remaining -= len(ready)
            return
        if self._ran_at != now:
            self._ran_at = now
            self._ran.clear()
        self._ran.update(_description_of(handle) for handle in ready)
        if self._ran.total() >= self._SAMPLE:
            self.remaining = self.limit
            busiest = "\n".join(
                f"  {times} x {callback}" for callback, times in self._ran.most_common(5)
            )
            raise Livelock(
                f"more than {self.limit} callbacks ran while the virtual time stayed at {now}. "
                f"The most frequent of the last {self._ran.total()}:\n{busiest}"
            )


class _InOrder(weakref.WeakKeyDictionary[Any, None]):
    """A WeakSet in order of insertion, with the methods that asyncio uses for generators."""

    def add(self, item: object) -> None:
        self[item] = None

    def discard(self, item: object) -> None:
        self.pop(item, None)


class SimLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time, whose order of callbacks is drawn from `seed`.

    With `seed` None the order is that of asyncio. `limit` is the maximum virtual time in seconds,
    which can be changed while the loop runs. `lag` is the maximum time in seconds by which
    callbacks run late, as on a busy loop. `patience` is the maximum number of callbacks at one
    virtual time.
    """

    virtual_time: Final = True  # consumers read this flag and then start no thread

    # set by BaseEventLoop, but not in its type stubs
    _closed: bool = True  # until the constructor has run
    _debug: bool
    _stopping: bool
    _thread_id: int | None
    _check_closed: Callable[[], None]
    _check_thread: Callable[[], None]
    _check_callback: Callable[[object, str], None]

    def __init__(
        self,
        seed: int | None = 0,
        *,
        limit: float | None = None,
        lag: float = 0.0,
        patience: int = 1_000_000,
    ) -> None:
        if lag and (lag < 0 or seed is None):
            raise ConfigError(
                f"`lag` must be 0 or more, and a positive `lag` needs a `seed`, got lag={lag} and "
                f"seed={seed}"
            )
        super().__init__()
        self.limit = math.inf if limit is None else limit
        self._lag = lag
        self._landed = 0.0  # the time of the last jump, from which lag counts
        self._draw = None if seed is None else random.Random(seed).random  # noqa: S311 - for replay
        self._callback_limit = _CallbackLimit(patience)
        self._timers = Timers()
        self._live_tasks = _LiveTasks()
        self._asyncgens = _InOrder()
        self._ready: list[asyncio.Handle] = []  # the callbacks of the next round
        self._ends: list[int] = []  # the ends of the blocks in it
        self._todo: list[asyncio.Handle] = []  # those of the current round, the last one first

    def time(self) -> float:
        """Return the virtual time, in seconds since the loop was created."""
        return self._timers.now

    def pending_tasks(self) -> list["asyncio.Task[Any]"]:
        """Return the tasks that are not done, in order of creation."""
        return self._live_tasks.pending()

    def unseen_failures(self) -> list["asyncio.Task[Any]"]:
        """Return the failed tasks whose exception was not retrieved, in order of creation."""
        return self._live_tasks.unseen()

    def create_task(
        self,
        coro: Awaited[T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        """Start a task and return it.

        Default names count from 1 in each loop, so that replays have the same names.
        """
        task: asyncio.Task[T]
        if self.get_task_factory() is not None:
            task = super().create_task(coro, name=name, context=context)
        else:
            self._check_closed()
            number = self._live_tasks.next_number()
            own_name = f"Task-{number}" if name is None else str(name)
            task = _Task(number, coro, self, own_name, context)
        self._live_tasks.add(task)
        return task

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback at the virtual time `when`, and return its handle.

        If that time is not in the future, the callback runs in the next round of callbacks.
        """
        timer: asyncio.TimerHandle
        if self._debug or self._closed:
            self._check(callback, "call_at")
            timer = asyncio.TimerHandle(when, callback, args, self, context)
        else:
            timer = Timer(when, callback, args, self, context)
        if when <= self._timers.now:
            self._ready.append(timer)
        else:
            self._timers.add(when, timer)
        return timer

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback in the next round of callbacks, and return its handle."""
        handle: asyncio.Handle
        if self._debug or self._closed:
            self._check(callback, "call_soon")
            handle = asyncio.Handle(callback, args, self, context)
        else:
            handle = Call(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _check(self, callback: object, method: str) -> None:
        """Check a callback as asyncio does, including the checks of debug mode."""
        self._check_closed()
        self._check_thread()
        self._check_callback(callback, method)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing, because `Timers.add` removes cancelled timers when there are many timers."""

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback in the next round of callbacks, and return its handle.

        Raise SimulationError if another thread than that of the loop calls this.
        """
        if self._thread_id not in {None, threading.get_ident()}:
            raise SimulationError(
                "call_soon_threadsafe was called from another thread. No seed decides when a "
                "thread runs, so use no threads in a simulation"
            )
        return self.call_soon(callback, *args, context=context)

    def close(self) -> None:
        """Close the loop and drop all callbacks and tasks."""
        super().close()
        self._todo.clear()
        self._timers.clear()
        self._live_tasks.clear()

    def _run_once(self) -> None:
        """Run rounds of callbacks until `stop` is called."""
        ready, ends, todo, patience = self._ready, self._ends, self._todo, self._callback_limit
        while True:
            if ready:
                if self._lag:
                    self._be_late()
            elif not todo:
                if self._stopping:
                    return
                self._jump()
            if len(ready) == 1 and patience.remaining > 0 and not todo:
                patience.remaining -= 1  # the most frequent round, and the hot path
                handle = ready.pop()
                ends.clear()
                if not handle._cancelled:  # noqa: SLF001 - a loop's own business
                    handle._run()  # noqa: SLF001
            else:
                self._run_round()
            if self._stopping:
                return

    def _run_round(self) -> None:
        """Run all ready callbacks, which make up a round.

        If an exception or `stop` interrupted the last round, run the rest of it instead.
        """
        ready, ends, todo = self._ready, self._ends, self._todo
        if not todo:
            self._callback_limit.spend(ready, self.time())
            todo.extend(arrange(ready, ends, self._draw))
            ready.clear()
            ends.clear()
        while todo:
            if ready and (not ends or ends[-1] != len(ready)):
                ends.append(len(ready))
            handle = todo.pop()
            if not handle._cancelled:  # noqa: SLF001 - as above
                handle._run()  # noqa: SLF001

    def _jump(self) -> None:
        """Advance the virtual time to the next timer.

        Raise Deadlock if no timer is set, or VirtualTimeout if the next timer is after the limit.
        """
        when = self._timers.advance(self._ready, self._ends, self.limit)
        if not self._ready:
            self._give_up(when)
        self._landed = when
        self._callback_limit.remaining = self._callback_limit.limit

    def _give_up(self, when: float) -> NoReturn:
        tasks = describe(self.pending_tasks())
        if when == math.inf:
            raise Deadlock(
                f"at {self.time()} virtual seconds all tasks wait, and no timer is set that could "
                f"wake one:\n{tasks}"
            )
        raise VirtualTimeout(
            f"the program did not end within {self.limit} virtual seconds (`limit`). Tasks still "
            f"waiting:\n{tasks}"
        )

    def _be_late(self) -> None:
        """In a random half of the rounds, advance the time to timers that are due within `lag`.

        These timers then fire before the remaining callbacks of the current time.
        """
        reach = min(self._landed + self._lag, self.limit)
        if self._timers.within(reach) and self._draw is not None and self._draw() < 0.5:
            self._timers.advance(self._ready, self._ends, reach)


def _description_of(handle: asyncio.Handle) -> str:
    """Return a text about the callback of a handle. For a task, it says where the task waits."""
    callback = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"{task.get_name()!r}, which {whereabouts(task)}"
    return f"{callback!r}"


_ABSENT: Final = {
    "threads": "run_in_executor set_default_executor",
    "sockets": "create_connection create_server create_datagram_endpoint create_unix_connection "
    "create_unix_server connect_accepted_socket start_tls sendfile getaddrinfo getnameinfo "
    "sock_accept sock_connect sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into "
    "sock_sendall sock_sendfile sock_sendto add_reader remove_reader add_writer remove_writer",
    "pipes and subprocesses": "connect_read_pipe connect_write_pipe subprocess_exec "
    "subprocess_shell",
    "signals": "add_signal_handler remove_signal_handler",
}


def _refusal(method: str, feature: str) -> Callable[..., NoReturn]:
    def refuse(_: SimLoop, *_args: object, **_options: object) -> NoReturn:
        raise SimulationError(
            f"loop.{method}(): a simulation has no {feature}. Use a fake in the simulated code, or "
            "run the code on a real loop"
        )

    refuse.__name__ = method
    return refuse


for _feature, _methods in _ABSENT.items():
    for _method in _methods.split():
        setattr(SimLoop, _method, _refusal(_method, _feature))
