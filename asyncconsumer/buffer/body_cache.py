"""A cache of decompressed record batches. Their bytes count against a consumer's memory limit."""

import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from asyncconsumer.buffer.preparing import Preparable, Preparing

_BODY_FRACTION: Final = 4  # bodies may always use a quarter of the limit
_MIN_PART: Final = 16 * 2**10  # bytes; a smaller part is not worth a decompression

R = TypeVar("R", bound=Preparable)


class Evictable(Protocol):
    """A decoder of record batches that can free decompressed bytes and decompress them later."""

    def evict(self) -> bool:
        """Free the decompressed bytes. Return False if they are in use."""


class BodyCache:
    """A cache of bodies: the decompressed records of batches. The oldest body is evicted first.

    No reader waits for room, because two readers could wait for each other. One body of any size
    may always be held. A body that was evicted and does not fit is decompressed in parts. Decoders
    call `make_room`, `hold` and `release` once per body, from any thread. `prepare` is called on
    the event loop, and decompresses large bodies in a thread.
    """

    def __init__(self, limit: int, used: Callable[[], int] = lambda: 0) -> None:
        self._limit = limit
        self._used = used  # bytes of the limit that fetches use
        # by reader, in the order of decompression; 0 bytes after an eviction
        self._sizes: dict[weakref.ref[Evictable], int] = {}
        self._lock = threading.RLock()  # a garbage collection may call `_forget` at any time
        self._preparing = Preparing()

    @property
    def size(self) -> int:
        """The total bytes of all bodies in memory."""
        return sum(self._sizes.values())

    def make_room(self, reader: Evictable) -> None:
        """Evict bodies until the cache is within its limit, before `reader` decompresses a body."""
        self._evict(reader)

    def hold(self, reader: Evictable, size: int, again: bool) -> int:  # noqa: FBT001 - called from C
        """Count `reader`'s decompressed body of `size` bytes. Return how many bytes it may keep.

        The result is `size`, unless the body was evicted before (`again`) and other readers have
        bodies. Then it may be less: the reader keeps only a part of the body, and only that part
        counts. A reader that keeps another number of bytes must call `hold` with that number.
        """
        with self._lock:
            self._sizes.pop(weakref.ref(reader), None)
            granted = size
            if again and self._sizes:
                part = self._allowed // (len(self._sizes) + 1)
                granted = min(size, max(_MIN_PART, part))
            self._sizes[weakref.ref(reader, self._forget)] = granted
            self._evict(reader)
        return granted

    def release(self, reader: Evictable) -> None:
        """Count the bytes of `reader` as free, because its decompressed body was freed."""
        self._sizes.pop(weakref.ref(reader), None)

    def trim(self) -> None:
        """Evict bodies until the cache is within its limit, but keep the last decompressed body.

        The limit shrinks while fetched responses use the memory of the consumer.
        """
        with self._lock:
            last = next(reversed(self._sizes), None)
            self._evict(last() if last is not None else None)

    async def prepare(self, reader: R) -> R:
        """Decompress the next record batch of `reader` in a thread. Return the reader."""
        return await self._preparing.prepare(reader)

    @property
    def _allowed(self) -> int:
        return max(self._limit // _BODY_FRACTION, self._limit - self._used())

    def _forget(self, reference: "weakref.ref[Evictable]") -> None:
        self._sizes.pop(reference, None)

    def _evict(self, exempt: Evictable | None) -> None:
        with self._lock:
            excess = self.size - self._allowed
            if excess <= 0:
                return
            for reference, size in list(self._sizes.items()):
                reader = reference()
                if size and reader is not None and reader is not exempt and reader.evict():
                    self._sizes[reference] = 0
                    excess -= size
                    if excess <= 0:
                        return
