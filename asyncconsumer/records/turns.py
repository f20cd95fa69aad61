"""A lock between the reader of `Records` and a thread that reads ahead, in pure Python."""

import threading
from typing import final


@final
class Turn:
    """A lock that at most one reader of some `Records` has. No caller waits for it.

    A thread that reads ahead may hold it for long. A caller that does not get the lock calls
    `refuse`, or leaves the work to that thread.
    """

    __slots__ = ("is_closing", "is_preparing", "lock", "position")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_preparing = False
        self.is_closing = False  # the holder of the lock closes the records when it is done
        self.position: int | None = None  # the value of `next_offset` while a thread reads ahead

    def take(self) -> bool:
        """Take the lock if it is free. Return whether the caller has the lock."""
        return self.lock.acquire(blocking=False)

    def give_back(self) -> None:
        """Release the lock."""
        self.lock.release()

    def refuse(self) -> None:
        """Raise `RuntimeError`, because another thread is reading."""
        raise RuntimeError("these Records are being read by another thread")

    def prepare(self, position: int) -> None:
        """Take the lock to read ahead. If another thread has it, raise `RuntimeError`.

        Until `end_prepare`, `next_offset` of the records stays at `position`.
        """
        if not self.take():
            self.refuse()
        self.position = position
        self.is_preparing = True

    def end_prepare(self) -> None:
        """Release the lock after reading ahead."""
        self.position = None
        self.give_back()
        # Last, because until then `close` leaves closing to this thread.
        self.is_preparing = False

    def close(self) -> bool:
        """Take the lock to close the records. Return whether the caller has the lock.

        Return False if a thread is reading ahead. That thread closes the records when it is done.
        If another thread is reading in any other way, raise `RuntimeError`.
        """
        self.is_closing = True
        if self.take():
            return True
        if not self.is_preparing:
            self.is_closing = False
            self.refuse()
        return False
