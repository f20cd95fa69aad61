"""Who reads a stream: what is known of the task, and what it has said by asking."""

import asyncio
from typing import Any


class Reader:
    """Who asked last, and whether it has asked since somebody waited for that."""

    def __init__(self) -> None:
        self.owner: asyncio.Task[Any] | None = None  # who began to read; it may have others ask
        self.task: asyncio.Task[Any] | None = None
        self.asked = asyncio.Event()
        self._failed = False  # an error ended its loop, and it has not asked since
        self.at_end = False  # it was told that nothing more comes
        self._waits = False  # for the next records

    @property
    def gave_up(self) -> bool:
        """Whether it was cancelled, or failed: it cannot have finished what it had."""
        return self._failed or any(
            task is not None and task.done() and (task.cancelled() or task.exception() is not None)
            for task in (self.owner, self.task)
        )

    def is_owned(self) -> None:
        """By this task."""
        self.owner = asyncio.current_task()

    def goes(self) -> asyncio.Task[Any] | None:
        """What there was to know of it is known."""
        task = self.task
        self.owner = self.task = None
        self._failed = False
        return task

    def comes(self) -> None:
        """It is this task."""
        self.task = asyncio.current_task()
        self._failed = self.at_end = False

    def fails(self) -> None:
        """Its loop was ended by an error; the task may live on."""
        self._failed = True
        self.asked.set()  # who waits for that need not

    def begins_to_wait(self) -> None:
        """For the next records, as nobody else may."""
        if self._waits:
            raise RuntimeError("another task already waits for the next record")
        self._waits = True

    def has_waited(self) -> None:
        """Somebody else may."""
        self._waits = False

    def ends(self) -> None:
        """It is told so."""
        self.at_end = True

    def asks(self) -> None:
        """And is done with what it had."""
        self.comes()
        self.asked.set()

    @property
    def is_this(self) -> bool:
        """Whether it is the task that runs now."""
        return asyncio.current_task() in (self.owner, self.task)

    @property
    def will_ask(self) -> bool:
        """Not if it is over, or is itself the one that would wait for that."""
        if self._failed:
            return False
        them = (self.owner, self.task)
        return not self.is_this and any(task is not None and not task.done() for task in them)
