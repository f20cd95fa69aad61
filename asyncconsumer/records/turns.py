"""A lock between the reader of `Records` and a thread that reads ahead, in pure Python."""

import threading
from typing import final


@final
class Turn:
    """A lock that no caller waits for, because a thread that reads ahead holds it for long.

    A caller that does not get it uses `refuse`, or leaves the work to that thread.
    """

    __slots__ = ("is_closing", "is_preparing", "lock", "position")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_preparing = False
        self.is_closing = False  # the holder of the lock closes the records when it is done
        self.position: int | None = None  # the value of `next_offset` while a thread reads ahead

    def take(self) -> bool:
        """Take the lock if it is free. Return whether it was free."""
        return self.lock.acquire(blocking=False)

    def give_back(self) -> None:
        """Release the lock."""
        self.lock.release()

    def refuse(self) -> None:
        """Raise `RuntimeError`. Callers use this if another thread is reading."""
        raise RuntimeError("these Records are being read by another thread")

    def prepare(self, position: int) -> None:
        """Take the lock to read ahead. Raise `RuntimeError` if another thread has it.

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
        """Take the lock to close the records.

        Return False if another thread is reading ahead and will close them.
        """
        self.is_closing = True
        if self.take():
            return True
        if not self.is_preparing:
            self.is_closing = False
            self.refuse()
        return False
