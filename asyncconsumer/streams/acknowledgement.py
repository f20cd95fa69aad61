"""The acknowledgement rule: which task reads a stream, and whether its last item is done."""

import abc
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
"""The task that read last. Tasks that it starts inherit the value (`wait_for` does on 3.11)."""


class Source(Protocol):
    """An async iterator that knows whether its last item is still being processed."""

    @property
    def in_flight(self) -> bool:
        """Whether an item was delivered and no next item was requested since."""


class ObservingSource(Source, abc.ABC):
    """A source with a method that is called when the loop over the source is left."""

    @abc.abstractmethod
    def on_exit(self, reason: Exit) -> None:
        """Handle the end of the loop. `reason` says how it was left, for example by ``break``."""


class HeldRecords(Protocol):
    """The attributes and methods of a stream that its `Reader` uses."""

    @property
    def is_unacknowledged(self) -> bool:
        """Whether a delivered record is not acknowledged yet."""

    @property
    def is_waiting(self) -> bool:
        """Whether a task waits for the next record."""

    def acknowledge(self) -> None:
        """Count all delivered records as processed."""


class Iteration:
    """One iteration over a stream, by an ``async for`` statement or by direct ``anext`` calls.

    Iterations with the same `family` belong to one iterator object. The user keeps that object and
    loops over it several times.
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
        self.prepare = prepare  # called when reading begins, with whether an item is in flight
        self.family = object() if family is None else family
        self.task = asyncio.current_task()  # the creator; another task may read
        self.loop: weakref.ref[Any] | None = None

    def begin(self) -> None:
        """Make this iteration the stream's reader. Raise ConcurrentRead if another task reads."""
        self.reader.begin(self)

    @property
    def continues(self) -> bool:
        """Whether `begin` would change nothing, because the same task reads on."""
        return self.reader.is_continued_by(self)

    def on_exit(self, reason: Exit) -> None:
        """Handle the end of the loop. `reason` says how it was left, for example by ``break``.

        After a ``break`` the item in flight is acknowledged. After an error it is redelivered.
        """
        self.reader.on_exit(self, reason)
        if isinstance(self.source, ObservingSource):
            self.source.on_exit(reason)

    def again(self) -> "Iteration":
        """Return a new iteration over the same iterator object, for another loop."""
        return Iteration(self.reader, self.source, self.prepare, self.family)

    def superseded(self) -> None:
        """Note that another iteration reads now. This loop calls `begin` before its next item."""
        if self.loop is not None and (loop := self.loop()) is not None:
            loop.begin_again()


class Reader:
    """The state of the task and the iteration that read a stream.

    A request for the next item acknowledges the item before, if the same iterator makes the
    request. Another iterator gets the unacknowledged item again.
    """

    def __init__(self, held: HeldRecords) -> None:
        self._held = held
        self._active: Iteration | None = None
        self._abandoned = False  # it is unknown how the active loop was left
        self.owner: asyncio.Task[Any] | None = None  # the iterator's creator
        self.task: asyncio.Task[Any] | None = None  # the task that asked last
        self.asked = asyncio.Event()
        self._failed = False  # an error ended the loop, and nothing was requested since
        self.at_end = False  # the reader has reached the end of the stream
        self._waits = False  # a task waits for the next chunk
        self._waits_elsewhere = False  # the reading task waits for a change of the assignment

    # --- iterations ------------------------------------------------------------------------------

    def begin(self, iteration: Iteration) -> None:
        """Make `iteration` the one that reads the stream.

        The item in flight is redelivered unless `iteration` continues the previous one. Raise
        ConcurrentRead if another task is reading.
        """
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

    def is_continued_by(self, iteration: Iteration) -> bool:
        """Return whether the current task has read by `iteration` last, and without an error."""
        current = asyncio.current_task()
        return (
            iteration is self._active
            and self.task is current
            and not (self._failed or self._abandoned)
            and (self.owner is current or not self.gave_up)
        )

    def on_exit(self, iteration: Iteration, reason: Exit) -> None:
        """Acknowledge the item in flight if its loop was left by ``break`` or ``return``.

        After an error, the item is redelivered to the next iteration.
        """
        if iteration is not self._active or not self.holds:
            return
        if reason == "break":
            self._held.acknowledge()
        elif reason == "error":
            self._failed = True
            self.asked.set()  # wakes `Stream.settled`, because this loop asks for nothing more
        else:
            self._abandoned = True

    def exit(self) -> None:
        """Acknowledge the item in flight when the ``async with`` block ends without an error.

        The item stays unacknowledged if its loop ended with an error, or if its task failed or was
        cancelled. It also stays so if another task reads the stream and still runs.
        """
        current = asyncio.current_task()
        tasks = [task for task in (self.owner, self.task) if task is not None]
        if self.holds and not self.gave_up and all(t is current or t.done() for t in tasks):
            self._held.acknowledge()

    @property
    def holds(self) -> bool:
        """Whether the reading task has an item that is not acknowledged."""
        active = self._active
        return active is not None and active.source.in_flight and self._held.is_unacknowledged

    def _continues(self, iteration: Iteration) -> bool:
        """Return whether `iteration` continues the active one.

        If so, its request acknowledges the last item. Otherwise the item is redelivered.
        """
        active = self._active
        if self.gave_up or active is None:
            return False
        return active is iteration or (active.family is iteration.family and not self._abandoned)

    def _check_alone(self, iteration: Iteration) -> None:
        current, active = asyncio.current_task(), self._active
        waits = self._waits or self._held.is_waiting
        if active is None or self._failed or not (waits or self.holds):
            return
        same = active.family is iteration.family
        if _lives(self.task):
            holder = self.task
        else:
            holder = self.owner if _lives(self.owner) and not same else None
        # the holder may have started a task to ask for the next item, as `wait_for` does
        helps = (_holder.get(None) if same else iteration.task) is holder
        if holder is not None and holder is not current and not helps:
            raise ConcurrentRead(holder.get_name(), waiting=waits)

    # --- tasks -----------------------------------------------------------------------------------

    @property
    def gave_up(self) -> bool:
        """Whether the loop ended with an error, or the reading task failed or was cancelled."""
        return self._failed or any(
            task is not None and task.done() and (task.cancelled() or task.exception() is not None)
            for task in (self.owner, self.task)
        )

    def attach(self) -> None:
        """Note that the current task reads the stream."""
        self.task = asyncio.current_task()
        self._failed = self.at_end = False

    def detach(self) -> asyncio.Task[Any] | None:
        """Forget the task that read the stream. Return that task, or None if no task did."""
        task = self.task
        self.owner = self.task = None
        self._failed = False
        return task

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Return a context manager that marks the current task as waiting for an item.

        Only one task may wait at a time.
        """
        if self._waits:
            raise ConcurrentRead("" if self.task is None else self.task.get_name(), waiting=True)
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    @contextmanager
    def waiting_elsewhere(self) -> Iterator[None]:
        """Return a context manager within which the current task waits for a rebalance.

        A rebalance waits until the reading task has acknowledged its records. Within the context it
        does not, because the reading task and the rebalance would wait for each other.
        """
        self._waits_elsewhere = self.is_current
        self.asked.set()
        try:
            yield
        finally:
            self._waits_elsewhere = False

    def mark_ended(self) -> None:
        """Note that the reader has reached the end of the stream."""
        self.at_end = True

    def acknowledge(self) -> None:
        """Note that the current task reads the stream and has acknowledged its items."""
        self.attach()
        self.asked.set()

    @property
    def is_current(self) -> bool:
        """Whether the current task is the one that reads the stream."""
        reads = self.task if _lives(self.task) else self.owner
        return reads is not None and asyncio.current_task() is reads

    @property
    def will_ask(self) -> bool:
        """Whether another task that reads the stream still runs, and may ask for the next item."""
        if self._failed or self._waits_elsewhere:
            return False
        current, tasks = asyncio.current_task(), (self.owner, self.task)
        return current not in tasks and any(_lives(task) for task in tasks)


def _lives(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and not task.done()
