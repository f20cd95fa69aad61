"""Which task reads a stream, by which iterator, and what that says of the record in hand."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

from asyncconsumer.errors import ConcurrentRead
from asyncconsumer.records.loop import Exit

if TYPE_CHECKING:
    import weakref

_holder: Final[ContextVar["asyncio.Task[Any] | None"]] = ContextVar("asyncconsumer_reader")
"""The task that read last by hand. Tasks it starts inherit it: `wait_for` starts one on 3.11."""


class Source(Protocol):
    """An async iterator that knows whether its last item was followed by another request."""

    @property
    def in_hand(self) -> bool:
        """Whether an item was handed out, and nothing asked for since."""


class HeldRecords(Protocol):
    """The stream that a reader reads."""

    @property
    def is_unacknowledged(self) -> bool:
        """Whether something was handed out that its user may not be done with."""

    def acknowledge(self) -> None:
        """Count everything handed out as processed."""


class Iteration:
    """One iterator over a stream: that of an ``async for`` statement, or of ``anext`` by hand.

    Iterations of one family belong to one iterator object, which the user keeps and loops over.
    """

    __slots__ = ("__weakref__", "family", "loop", "prepare", "reader", "source", "task")

    def __init__(
        self,
        reader: "Reader",
        source: Source,
        prepare: Callable[[bool], None],
        family: object = None,
    ) -> None:
        self.reader = reader
        self.source = source
        self.prepare = prepare  # called when reading begins, with whether something is in hand
        self.family = object() if family is None else family
        self.task = asyncio.current_task()  # the task that created it; another one may read
        self.loop: weakref.ref[Any] | None = None

    def begin(self) -> None:
        """Make this the iteration that reads; raise ConcurrentRead if another task is reading."""
        self.reader.begin(self)

    def left(self, how: Exit) -> None:
        """Take note that the loop was left."""
        self.reader.left(self, how)

    def again(self) -> "Iteration":
        """Return the iteration of another loop over the same iterator."""
        return Iteration(self.reader, self.source, self.prepare, self.family)

    def superseded(self) -> None:
        """Have the loop begin again before its next item, because another one reads now."""
        if self.loop is not None and (loop := self.loop()) is not None:
            loop.begin_again()


class Reader:
    """The task and the iteration that read a stream.

    Asking for the next item acknowledges the one before if the same iterator is asked. Another
    iterator delivers an item again whose acknowledgement is not known.
    """

    def __init__(self, held: HeldRecords) -> None:
        self._held = held
        self._active: Iteration | None = None
        self._abandoned = False  # the active loop was left, and nobody knows how
        self.owner: asyncio.Task[Any] | None = None  # created the iterator; others may use it
        self.task: asyncio.Task[Any] | None = None  # asked last
        self.asked = asyncio.Event()
        self._failed = False  # an error ended the loop, and nothing was asked for since
        self.at_end = False  # the reader was told that nothing more comes
        self._waits = False  # for the next records

    # --- iterations ------------------------------------------------------------------------------

    def begin(self, iteration: Iteration) -> None:
        """Let an iteration read; what is in hand is delivered again unless it continues."""
        self._check_alone(iteration)
        active = self._active
        if not self._continues(iteration):
            iteration.prepare(self.holds)
        if active is not iteration:
            if active is not None:
                active.superseded()
            self._active, self.owner = iteration, iteration.task
        self._abandoned = False
        self.attach()
        _holder.set(self.task)

    def left(self, iteration: Iteration, how: Exit) -> None:
        """Acknowledge what a loop had in hand if it was left by ``break`` or ``return``."""
        if iteration is not self._active or not self.holds:
            return
        if how == "break":
            self._held.acknowledge()
        elif how == "error":
            self._failed = True
            self.asked.set()  # nobody need wait for its next question
        else:
            self._abandoned = True

    def exit(self) -> None:
        """Acknowledge what is in hand, because the block was left without an error.

        An item is not acknowledged whose loop ended with an error, or whose task failed, was
        cancelled, or is still running.
        """
        current = asyncio.current_task()
        tasks = [task for task in (self.owner, self.task) if task is not None]
        if self.holds and not self.gave_up and all(t is current or t.done() for t in tasks):
            self._held.acknowledge()

    @property
    def holds(self) -> bool:
        """Whether the reader has an item in hand that is not acknowledged."""
        active = self._active
        return active is not None and active.source.in_hand and self._held.is_unacknowledged

    def _continues(self, iteration: Iteration) -> bool:
        """Whether a request by this iteration acknowledges what is in hand."""
        active = self._active
        if self.gave_up or active is None:
            return False
        return active is iteration or (active.family is iteration.family and not self._abandoned)

    def _check_alone(self, iteration: Iteration) -> None:
        current, active = asyncio.current_task(), self._active
        if active is None or self._failed or not (self._waits or self.holds):
            return
        same = active.family is iteration.family
        if _lives(self.task):
            holder = self.task
        else:
            holder = self.owner if _lives(self.owner) and not same else None
        # a task that the holder started to ask for the next item, such as by wait_for
        helps = (_holder.get(None) if same else iteration.task) is holder
        if holder is not None and holder is not current and not helps:
            raise ConcurrentRead(holder.get_name(), waiting=self._waits)

    # --- tasks -----------------------------------------------------------------------------------

    @property
    def gave_up(self) -> bool:
        """Whether the loop failed, or the task failed or was cancelled."""
        return self._failed or any(
            task is not None and task.done() and (task.cancelled() or task.exception() is not None)
            for task in (self.owner, self.task)
        )

    def attach(self) -> None:
        """Take note that the current task reads."""
        self.task = asyncio.current_task()
        self._failed = self.at_end = False

    def detach(self) -> asyncio.Task[Any] | None:
        """Forget the task that read, and return it."""
        task = self.task
        self.owner = self.task = None
        self._failed = False
        return task

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Take note that the current task waits for the next item; only one task may."""
        if self._waits:
            raise ConcurrentRead("" if self.task is None else self.task.get_name(), waiting=True)
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def mark_ended(self) -> None:
        """Take note that the reader was told that nothing more comes."""
        self.at_end = True

    def acknowledge(self) -> None:
        """Take note that the current task is done with what it had."""
        self.attach()
        self.asked.set()

    @property
    def is_current(self) -> bool:
        """Whether the current task is the one that reads."""
        reads = self.task if _lives(self.task) else self.owner
        return reads is not None and asyncio.current_task() is reads

    @property
    def will_ask(self) -> bool:
        """Whether another task is alive that may ask for the next item."""
        if self._failed:
            return False
        current, tasks = asyncio.current_task(), (self.owner, self.task)
        return current not in tasks and any(_lives(task) for task in tasks)


def _lives(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and not task.done()
