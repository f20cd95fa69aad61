"""Signs of life of a fetch manager, taken when it looks around."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.fetch.stalls import Stalls
from asyncconsumer.types import Address


@dataclass(slots=True)
class Liveness:
    """When something last moved, and who is silent; by the loop's clock, half a second at worst."""

    stalls: Stalls
    last_moved: float = -inf  # when a reader last took something
    asked: frozenset[Address] = frozenset()  # brokers that are read from
    silent: frozenset[Address] = frozenset()  # those of them that should have answered by now
    _motion: tuple[int, ...] = ()

    def look(
        self,
        channels: Iterable[Channel],
        asked: Iterable[Address],
        silent: Iterable[Address],
        now: float,
    ) -> None:
        """See what has changed since the last look."""
        motion = tuple(sorted(sum(channel.motion) for channel in channels))
        if motion != self._motion:
            self._motion, self.last_moved = motion, now
        self.asked, self.silent = frozenset(asked), frozenset(silent)
