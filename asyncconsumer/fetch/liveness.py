"""The recent activity of a fetch manager, sampled by its periodic check."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.fetch.stalls import Stalls
from asyncconsumer.types import Address


@dataclass(slots=True)
class Liveness:
    """The time of the last progress of readers, and the brokers that are overdue.

    Times are by the loop's clock and up to half a second late.
    """

    stalls: Stalls
    last_moved: float = -inf  # when a reader last took records
    used: frozenset[Address] = frozenset()  # brokers that partitions are fetched from
    silent: frozenset[Address] = frozenset()  # brokers that are overdue
    _markers: tuple[int, ...] = ()

    def update(
        self,
        channels: Iterable[Channel],
        used: Iterable[Address],
        silent: Iterable[Address],
        now: float,
    ) -> None:
        """Store which brokers are in use and which are overdue, as of the loop time `now`.

        If a reader took records since the last call, set `last_moved` to `now`.
        """
        markers = tuple(sorted(sum(channel.progress_marker) for channel in channels))
        if markers != self._markers:
            self._markers, self.last_moved = markers, now
        self.used, self.silent = frozenset(used), frozenset(silent)
