"""The bytes that all channels of one consumer may hold together."""

import asyncio

from asyncconsumer.buffer.body_cache import BodyCache


class Budget:
    """One number of bytes for everything that was fetched, or asked for, and is not used up yet.

    A fetcher reserves what an answer may bring before it asks, so nothing that comes is too much.
    The one thing that may go beyond the limit is a batch that is larger than what was asked for:
    brokers send it whole, for else nobody could ever read it.

    Decompressed bodies are charged to `bodies`, which may have what is free. A fetch never waits
    for them: it evicts them. A quarter of the limit is theirs even if fetches use all of it.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self.bodies = BodyCache(limit, lambda: self.used)
        self._bells: dict[asyncio.Event, None] = {}

    @property
    def free(self) -> int:
        """Bytes that are neither used nor reserved."""
        return self.limit - self.used

    def take(self, size: int) -> None:
        """Use, or reserve, so many bytes. Ask `free` before."""
        self.used += size
        self.peak = max(self.peak, self.used)
        self.bodies.trim()

    def give_back(self, size: int) -> None:
        """So many bytes are free again; whoever waited for that looks again."""
        self.used -= size
        self.wake()

    def wake(self) -> None:
        """Have whoever waits look again: there may be room, though nothing was given back."""
        if self._bells:
            for bell in self._bells:
                bell.set()
            self._bells.clear()

    def ring(self, bell: asyncio.Event) -> None:
        """Set the event the next time that something is given back."""
        self._bells.setdefault(bell)

    def silence(self, bell: asyncio.Event) -> None:
        """Forget the event: nobody waits for it any more."""
        self._bells.pop(bell, None)
