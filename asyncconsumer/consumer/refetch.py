"""Damaged records are fetched again before they are believed to be damaged at the broker."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_MOST_FETCHES: Final = 3  # besides the first


class RefetchPolicy:
    """Counts how often the same place was fetched again, for one stream."""

    def __init__(
        self,
        position: Callable[[TopicPartition], int | None],
        seek: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        self._position = position
        self._seek = seek
        self._tries: dict[TopicPartition, tuple[int, int]] = {}  # the offset, and how often
        self._log = RateLimitedLogger(_log)

    def recover(self, error: Exception) -> bool:
        """Fetch damaged records again; False if that was done often enough, or it is another error.

        Whoever reads on after the error was raised has it tried as often again.
        """
        if not isinstance(error, CorruptRecords):
            return False
        place = TopicPartition(error.topic, error.partition)
        offset, tries = self._tries.pop(place, (error.offset, 0))
        if offset != error.offset:
            tries = 0
        if tries >= _MOST_FETCHES:
            return False
        self._log.warning("%s: it is fetched again (%d of %d)", error, tries + 1, _MOST_FETCHES)
        self._tries[place] = error.offset, tries + 1
        # what was collected for a batch and not handed out is dropped by the seek: from there on
        position = self._position(place)
        self._seek({place: error.offset if position is None else min(position, error.offset)})
        return True
