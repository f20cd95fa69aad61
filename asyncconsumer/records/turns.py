"""Who reads Records at the moment, in pure Python: the user, or a thread that reads ahead."""

import threading
from typing import final


@final
class Turn:
    """A lock that nobody waits for. A thread that prepares a body has it for long."""

    __slots__ = ("is_closing", "is_preparing", "lock", "position")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_preparing = False
        self.is_closing = False  # who has the lock closes when it is done
        self.position: int | None = None  # what `next_offset` is while a thread reads ahead

    def take(self) -> bool:
        """Read from now on; False if somebody else does."""
        return self.lock.acquire(blocking=False)

    def give_back(self) -> None:
        """Read no more."""
        self.lock.release()

    def refuse(self) -> None:
        """Raise, because somebody else reads."""
        raise RuntimeError("these Records are being read by another thread")

    def prepare(self, position: int) -> None:
        """Read ahead from there; what is read is not handed out."""
        if not self.take():
            self.refuse()
        self.position = position
        self.is_preparing = True

    def end_prepare(self) -> None:
        """Read ahead no more."""
        self.position = None
        self.give_back()
        # only now: until then, whoever closes leaves that to us
        self.is_preparing = False

    def close(self) -> bool:
        """Take the lock to close; False if a thread prepares a body, and closes after that."""
        self.is_closing = True
        if self.take():
            return True
        if not self.is_preparing:
            self.is_closing = False
            self.refuse()
        return False
