"""The limit of bytes that all channels of one consumer may hold together."""

import asyncio
from typing import Final

from asyncconsumer.buffer.body_cache import BodyCache

_FRACTION: Final = 4  # the shares together are a quarter of the limit


class Budget:
    """The bytes of all fetches in flight and of all buffered chunks, with a limit.

    A fetcher reserves the maximum size of a response before the request. Only a record batch larger
    than the requested size exceeds the limit. Brokers send such a batch whole, because otherwise it
    could never be read.

    If there are several channels, a quarter of the limit is divided into one share for each of
    them. Only a fetch for a channel without data uses shares. So a reader of several channels gets
    the next record of one of them even if the unread data of the others fills the rest.

    Decompressed bodies are charged to `bodies`, which may use the free bytes. A fetch evicts bodies
    instead of waiting for free bytes. Bodies may use a quarter of the limit even if fetches use all
    of it.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.share = 0  # bytes of one channel; 0 if there is only one
        self.used = 0
        self._reserve = 0  # bytes of all shares
        self.peak = 0
        self.bodies = BodyCache(limit, lambda: self.used)
        self._wakeups: dict[asyncio.Event, None] = {}

    @property
    def free(self) -> int:
        """The bytes that any fetch may use, without those kept for channels that have no data."""
        return self.limit - self._reserve - self.used

    @property
    def has_share(self) -> bool:
        """Whether a channel without data may use its share, because the limit has room for it."""
        return 0 < self.share <= self.limit - self.used

    def divide(self, channels: int) -> None:
        """Keep a quarter of the limit for channels without data, in equal shares.

        There is one share for each of `channels` channels. With only one channel, nothing is kept.
        """
        self._reserve = self.limit // _FRACTION if channels > 1 else 0
        self.share = self._reserve // channels

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
        """Do not set the event `wakeup` any more, despite an earlier `notify_on_release`."""
        self._wakeups.pop(wakeup, None)
