"""The order of callbacks in a simulation: what is kept and what the seed permutes.

**What is kept.** Callbacks run in rounds, which are the iterations of asyncio's loop. Callbacks
that are ready at the start of a round run in it. Callbacks that they schedule run in the next
round. Within a round:

1. Callbacks that one callback scheduled run in the order in which it scheduled them. Tasks started
   by one step of a task start in that order, and the waiters of one `Event.set()` wake in that
   order. When a task continues after `sleep(0)`, everything that it scheduled before has begun.
2. A callback that was scheduled by `call_soon` and is not a step of a task runs before all
   callbacks that were scheduled later, by any callback. Transports and protocols rely on this:
   `connection_made`, then the data in order, then `connection_lost`.
3. Timers fire in the order of their deadlines, never early. Timers for one deadline that were set
   at the same moment fire in the order in which they were set, because real time would have
   advanced between them.

**What is permuted.** All other callbacks are permuted. Steps of tasks that different callbacks
scheduled run in any order within their round, and may run after plain callbacks. Timers for the
same deadline that were set at different moments fire in any order. Steps that one callback
scheduled in a row stay together.

**Why that covers reality.** First in, first out is always one of the permitted orders. Two real
runs differ in which socket or timer is ready first, and so in which of the waiting tasks runs
first. At one virtual moment, every order of these tasks is permitted. If a fake network draws its
delays from a seed, the moments differ too.

Orders that today's asyncio does not produce are also tried. They differ from its own orders in how
many rounds a primitive takes to wake its waiter. No documentation promises this number, and it
changes between releases and loops. For example, a task may be cancelled before its first step, by a
task that always runs just after it in plain asyncio.

**Why it finds bugs.** Code often checks a condition, awaits and then acts, while another task
changes the condition. In plain asyncio the two tasks always meet in the same order.

**A busy loop.** A real loop may be late: a timer becomes due while the callbacks of an earlier one
still run. So a result and its timeout can occur in the same round. With `lag` seconds, the time may
advance by up to `lag` before the callbacks of the current time are done, and the timers that become
due join the next round. With the default, 0, all callbacks of one time are done before the next
time begins.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable
from typing import Final

# Deadlines within this distance are one moment, as in asyncio: 0.1 + 0.2 equals 0.3.
_RESOLUTION: Final = 1e-9
# The two callbacks that step a task of CPython. `call_soon(task.cancel)` is not a step.
_STEPS: Final = frozenset({None, "task_wakeup"})


class Timers:
    """The virtual time and the pending timers.

    The timers are in a heap, as in asyncio. Unlike there, they are compared in C, and timers with
    the same deadline keep their order.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, float, asyncio.TimerHandle]] = []
        self._serial = itertools.count()
        self._tidy_at = 64

    def add(self, when: float, timer: asyncio.TimerHandle) -> None:
        """Add a timer that fires at the virtual time `when`, which must not be in the past.

        If `when` is infinite, the timer never fires.
        """
        if when < math.inf:
            heapq.heappush(self._heap, (when, next(self._serial), self.now, timer))
        elif math.isnan(when):
            raise ValueError("the time of a timer must not be NaN")
        if len(self._heap) >= self._tidy_at:  # most timeouts are cancelled early
            self._heap = [entry for entry in self._heap if not entry[3].cancelled()]
            heapq.heapify(self._heap)
            self._tidy_at = 2 * len(self._heap) + 64

    def within(self, latest: float) -> bool:
        """Return whether a timer is set for the time `latest` or earlier. It may be cancelled."""
        return bool(self._heap) and self._heap[0][0] <= latest

    def advance(self, ready: list[asyncio.Handle], ends: list[int], latest: float) -> float:
        """Advance the time to the next deadline, and append its timers to `ready`.

        Do nothing if the deadline is after `latest`. Timers that were set at one moment form a
        block. The index at which each block in `ready` ends, except the last, is appended to
        `ends`. Return the next deadline, even if it is after `latest`, or infinity if no timer is
        set.
        """
        heap = self._heap
        while heap and heap[0][3]._cancelled:  # noqa: SLF001 - the hot path
            heapq.heappop(heap)
        if not heap or heap[0][0] > latest:
            return heap[0][0] if heap else math.inf
        when, _, set_at, timer = heapq.heappop(heap)
        if ready:
            ends.append(len(ready))
        ready.append(timer)
        end = when + _RESOLUTION
        while heap and heap[0][0] < end:
            if heap[0][2] != set_at:
                ends.append(len(ready))
            when, _, set_at, timer = heapq.heappop(heap)
            ready.append(timer)
        self.now = when
        return when

    def clear(self) -> None:
        """Remove all timers."""
        self._heap.clear()


def arrange(
    ready: list[asyncio.Handle], ends: list[int], draw: Callable[[], float] | None
) -> list[asyncio.Handle]:
    """Return the callbacks of a round in a random permitted order. The last item runs first.

    `ready` has the callbacks in blocks. A block has the callbacks that one callback scheduled.
    `ends` has the index at which each block ends, except the last. `draw` returns random numbers
    from 0 to 1. Without `draw` the order is that of asyncio.
    """
    if draw is None or not ends:
        return ready[::-1]
    blocks: list[list[asyncio.Handle]] = []
    end = len(ready)
    for start in (*reversed(ends), 0):
        movable = end
        while movable > start and _movable(ready[movable - 1]):
            movable -= 1
        if movable < end:  # anywhere among later callbacks
            blocks.insert(int(draw() * (len(blocks) + 1)), ready[movable:end])
        if start < movable:  # before all later callbacks
            blocks.append(ready[start:movable])
        end = start
    return [handle for block in blocks for handle in reversed(block)]


def _movable(handle: asyncio.Handle) -> bool:
    """Return whether the seed may let later callbacks run before this one.

    Return True for timers and for steps of tasks.
    """
    if isinstance(handle, asyncio.TimerHandle):
        return True
    callback = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no public access
    return (
        isinstance(getattr(callback, "__self__", None), asyncio.Task)
        and getattr(callback, "__name__", None) in _STEPS
    )
