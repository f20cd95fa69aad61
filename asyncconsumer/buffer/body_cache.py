"""The decompressed bodies that readers hold: a cache that is charged to a budget."""

import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from asyncconsumer.buffer.preparing import Preparable, Preparing

_QUARTER: Final = 4  # this part of the limit is for bodies, whatever others use of it
_LEAST_WINDOW: Final = 16 * 2**10  # bytes of a body that are worth decompressing it again for

R = TypeVar("R", bound=Preparable)


class Evictable(Protocol):
    """What can free its decompressed body; it decompresses it again when it is read on."""

    def evict(self) -> bool:
        """Free the decompressed body; False if it is in use."""


class BodyCache:
    """Charges decompressed bodies to a limit, and evicts the least recently decompressed ones.

    Nobody waits for room: a reader that waits for another could wait for ever. One body may always
    be held, however large. A body that was evicted and does not fit comes back in parts.
    Methods are called by the decoders, once per body, from any thread. `prepare` decompresses large
    bodies in a thread, and is called on the event loop.
    """

    def __init__(self, limit: int, used: Callable[[], int] = lambda: 0) -> None:
        self._limit = limit
        self._used = used  # bytes of the limit that others use
        # by reader, in the order of use; 0 bytes if it was evicted in the middle of a body
        self._sizes: dict[weakref.ref[Evictable], int] = {}
        self._lock = threading.RLock()  # a garbage collection may call `_forget` at any time
        self._preparing = Preparing()

    @property
    def size(self) -> int:
        """Bytes of all bodies that are in memory."""
        return sum(self._sizes.values())

    def make_room(self, reader: Evictable) -> None:
        """Evict what is too much, before `reader` decompresses a body."""
        self._evict(reader)

    def hold(self, reader: Evictable, size: int, again: bool) -> int:  # noqa: FBT001 - called from C
        """Charge a body, or what is kept of it; returns how many bytes the reader may keep.

        `again` says that it was evicted before. Then it is charged with what it may keep. Who
        keeps more than that says so.
        """
        with self._lock:
            self._sizes.pop(weakref.ref(reader), None)
            kept = size
            if again and self._sizes:
                share = self._allowed // (len(self._sizes) + 1)
                kept = min(size, max(_LEAST_WINDOW, share))
            self._sizes[weakref.ref(reader, self._forget)] = kept
            self._evict(reader)
        return kept

    def release(self, reader: Evictable) -> None:
        """The reader has no body any more."""
        self._sizes.pop(weakref.ref(reader), None)

    def trim(self) -> None:
        """Evict what is too much, because others use more; not what was decompressed last."""
        with self._lock:
            last = next(reversed(self._sizes), None)
            self._evict(last() if last is not None else None)

    async def prepare(self, reader: R) -> R:
        """Have `reader` decompress its next body in a thread; returns the reader."""
        return await self._preparing.prepare(reader)

    @property
    def _allowed(self) -> int:
        return max(self._limit // _QUARTER, self._limit - self._used())

    def _forget(self, dead: "weakref.ref[Evictable]") -> None:
        self._sizes.pop(dead, None)

    def _evict(self, spared: Evictable | None) -> None:
        with self._lock:
            excess = self.size - self._allowed
            if excess <= 0:
                return
            for reference, size in list(self._sizes.items()):
                reader = reference()
                if size and reader is not None and reader is not spared and reader.evict():
                    self._sizes[reference] = 0
                    excess -= size
                    if excess <= 0:
                        return
