"""The limit of bytes that all channels of one consumer may hold together."""

import asyncio

from asyncconsumer.buffer.body_cache import BodyCache


class Budget:
    """The bytes of all fetches in flight and of all buffered chunks, with a limit.

    A fetcher reserves the maximum size of a response before the request. Only a record batch larger
    than the requested size exceeds the limit. Brokers send such a batch whole, because otherwise it
    could never be read.

    Decompressed bodies are charged to `bodies`, which may use the free bytes. A fetch does not wait
    for bodies but evicts them. Bodies may use a quarter of the limit even if fetches use all.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self.bodies = BodyCache(limit, lambda: self.used)
        self._wakeups: dict[asyncio.Event, None] = {}

    @property
    def free(self) -> int:
        """The bytes that are neither used nor reserved."""
        return self.limit - self.used

    def take(self, size: int) -> None:
        """Count `size` bytes as used or reserved.

        The limit is not checked, so the caller must compare `size` with `free` first.
        """
        self.used += size
        self.peak = max(self.peak, self.used)
        self.bodies.trim()

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again, and wake the waiting fetchers."""
        self.used -= size
        self.wake()

    def wake(self) -> None:
        """Wake the waiting fetchers, because a channel may have room."""
        if self._wakeups:
            for wakeup in self._wakeups:
                wakeup.set()
            self._wakeups.clear()

    def notify_on_release(self, wakeup: asyncio.Event) -> None:
        """Set the event `wakeup` at the next `give_back` or `wake`."""
        self._wakeups.setdefault(wakeup)

    def cancel_notify(self, wakeup: asyncio.Event) -> None:
        """Do not set an event any more that was passed to `notify_on_release`."""
        self._wakeups.pop(wakeup, None)
