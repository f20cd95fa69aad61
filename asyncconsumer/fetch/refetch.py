"""The policy to fetch corrupt records again before their error is raised."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_MOST_FETCHES: Final = 3  # fetches after the first one


class RefetchPolicy:
    """A limit of how often one stream fetches the same corrupt records again.

    `position` returns the offset of the first record to fetch again, or None if it is that of the
    corrupt records. `seek` sets the fetch positions of partitions.
    """

    def __init__(
        self,
        position: Callable[[TopicPartition], int | None],
        seek: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        self._position = position
        self._seek = seek
        # the corrupt offset and the number of fetches
        self._tries: dict[TopicPartition, tuple[int, int]] = {}
        self._log = RateLimitedLogger(_log)

    def recover(self, error: Exception) -> bool:
        """Seek back to corrupt records, so that they are fetched again. Return whether it did.

        Return False for errors other than `CorruptRecords`, and after 3 fetches. The count then
        restarts, because a reader may continue after the error.

        Also return False if the length of the corrupt records is corrupt, so that their end is
        unknown. If the log of the broker is corrupt there, its fetch responses have no records, and
        the reader would wait forever.
        """
        if not isinstance(error, CorruptRecords) or error.resume is None:
            return False
        place = TopicPartition(error.topic, error.partition)
        offset, tries = self._tries.pop(place, (error.offset, 0))
        if offset != error.offset:
            tries = 0
        if tries >= _MOST_FETCHES:
            return False
        self._log.warning(
            "%s; fetching the records again (attempt %d of %d)", error, tries + 1, _MOST_FETCHES
        )
        self._tries[place] = error.offset, tries + 1
        # the seek drops records that were collected for a batch, so start at the first of them
        position = self._position(place)
        self._seek({place: error.offset if position is None else min(position, error.offset)})
        return True
