"""In which order the callbacks of a simulation run: what is kept and what the seed permutes.

**What is kept.** Callbacks run in rounds, as in asyncio: whatever is ready when a round begins runs
in it; what that schedules runs in the next. Within a round:

1. What one callback scheduled runs in the order it was scheduled: tasks started by one step start
   in that order, the waiters of one `Event.set()` wake in that order, and after `sleep(0)` a task
   finds begun what it had scheduled before.
2. A plain `call_soon` callback (anything but a step of a task) is never overtaken by what was
   scheduled after it, by anybody. Transports and protocols live on this: `connection_made`, then
   the data in order, then `connection_lost`.
3. Timers fire in the order of their deadlines, never early. Those for one deadline that were set
   at the same moment fire in the order they were set: real time would have moved in between.

**What is permuted**: everything else. Steps of tasks that different callbacks scheduled come in any
order within their round, and may fall behind plain callbacks. Timers for the same deadline that
were set at different moments fire in any order. Steps that one callback scheduled in a row stay
together.

**Why that covers reality.** First in, first out is always one of the permitted orders. What differs
between two real runs is which socket or timer was ready first, and so which of the tasks behind
them. At one virtual moment, every order of these tasks is permitted. (Let a fake network draw its
delays from a seed: then the moments differ too.) Orders that today's asyncio does not produce are
also tried: they differ from its own in how many rounds a primitive takes to wake its waiter,
which no documentation promises and which changes between releases and loops. (A task may, say, be
cancelled before its first step by one that in plain asyncio always comes just after it.)

**Why it finds bugs.** A round is where code that checks, awaits and then acts meets the task which
changes what was checked. In plain asyncio the two keep in step and meet in the same order always.

**A busy loop.** A real loop may be late: a timer comes due while the callbacks of an earlier one
still run, which is how a result and its timeout meet. With `lag` seconds, timers that are due
within `lag` of the last jump may join any round before the earlier work is done. With the default,
0, each moment is finished before the next begins, and every time is exact.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable
from typing import Final

# Deadlines this close are one moment, as in asyncio: 0.1 + 0.2 and 0.3 are the same time.
_RESOLUTION: Final = 1e-9
# The two callbacks by which a task of CPython moves on; `call_soon(task.cancel)` is no such step.
_STEPS: Final = frozenset({None, "task_wakeup"})


class Timers:
    """The time and what is set for later.

    A heap, as in asyncio, but one that compares in C and keeps equal deadlines in order.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, float, asyncio.TimerHandle]] = []
        self._serial = itertools.count()
        self._tidy_at = 64

    def add(self, when: float, timer: asyncio.TimerHandle) -> None:
        """Set `timer` for `when`, which lies ahead; one set for infinity never fires."""
        if when < math.inf:
            heapq.heappush(self._heap, (when, next(self._serial), self.now, timer))
        elif math.isnan(when):
            raise ValueError("a timer needs a time, and NaN is none")
        if len(self._heap) >= self._tidy_at:  # timeouts are mostly cancelled long before their time
            self._heap = [entry for entry in self._heap if not entry[3].cancelled()]
            heapq.heapify(self._heap)
            self._tidy_at = 2 * len(self._heap) + 64

    def within(self, latest: float) -> bool:
        """Whether a timer is set for a time no later than `latest`, cancelled or not."""
        return bool(self._heap) and self._heap[0][0] <= latest

    def advance(self, ready: list[asyncio.Handle], ends: list[int], latest: float) -> float:
        """Go to the next deadline, if it is no later than `latest`, and add its timers to `ready`.

        Timers that were set at one moment form a block; `ends` gets the end of the block before
        each. The answer is the deadline, reached or not, and infinity when there is none.
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
        """Forget every timer."""
        self._heap.clear()


def arrange(
    ready: list[asyncio.Handle], ends: list[int], draw: Callable[[], float] | None
) -> list[asyncio.Handle]:
    """The callbacks of a round in an order that the rules permit, the last to run first.

    `ends` says where in `ready` each block but the last ends; `draw` gives random numbers from
    0 to 1, and without it the order is that of asyncio.
    """
    if draw is None or not ends:
        return ready[::-1]
    blocks: list[list[asyncio.Handle]] = []
    end = len(ready)
    for start in (*reversed(ends), 0):
        movable = end
        while movable > start and _movable(ready[movable - 1]):
            movable -= 1
        if movable < end:  # anywhere among what was scheduled later
            blocks.insert(int(draw() * (len(blocks) + 1)), ready[movable:end])
        if start < movable:  # ahead of all that was scheduled later
            blocks.append(ready[start:movable])
        end = start
    return [handle for block in blocks for handle in reversed(block)]


def _movable(handle: asyncio.Handle) -> bool:
    """Whether what was scheduled later may overtake: true of a timer and of a step of a task."""
    if isinstance(handle, asyncio.TimerHandle):
        return True
    callback = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001 - no other way to tell
    return (
        isinstance(getattr(callback, "__self__", None), asyncio.Task)
        and getattr(callback, "__name__", None) in _STEPS
    )
