"""What becomes of what cannot be read: a record that does not deserialize, a damaged batch."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from asyncconsumer.errors import CorruptRecords, DeserializationFailed
from asyncconsumer.fetch.events import Events, Poisoned
from asyncconsumer.model import TopicPartition

Unreadable: TypeAlias = CorruptRecords | DeserializationFailed


class Letters(Protocol):
    """Where it can be kept."""

    async def write_unreadable(self, error: Unreadable) -> None:
        """Keep it; returns once it is kept."""


class Poison(NamedTuple):
    """One policy for all streams of a consumer."""

    policy: str
    events: Events
    seek: Callable[[Mapping[TopicPartition, int]], None]  # to get over a damaged batch
    letters: Letters | None = None

    def raises(self, error: Unreadable) -> bool:
        """Whether its user is told; also of what time may mend, or where nobody knows the end."""
        endless = isinstance(error, CorruptRecords) and error.resume is None
        return self.policy == "raise" or error.retriable or endless

    async def met(self, error: Unreadable) -> None:
        """Deal with it so that reading can go on, or raise it."""
        if self.raises(error):
            raise error
        place: Any = error if isinstance(error, CorruptRecords) else error.record
        partition, offset = TopicPartition(place.topic, place.partition), place.offset
        if self.letters is not None:
            await self.letters.write_unreadable(error)
        self.events.tell(Poisoned(partition, offset, self.policy, str(error)))
        if isinstance(error, CorruptRecords) and error.resume is not None:
            self.seek({partition: error.resume})
