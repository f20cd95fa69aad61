"""What becomes of what cannot be read: a record that does not deserialize, a damaged batch."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias, cast

from asyncconsumer.consumer.dead_letters import DeadLetterProducer, Failure
from asyncconsumer.errors import CorruptRecords, DeserializationFailed
from asyncconsumer.events import EventBus, RecordUnreadable
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

Unreadable: TypeAlias = CorruptRecords | DeserializationFailed


class PoisonPolicy(NamedTuple):
    """One policy for all streams of a consumer."""

    policy: str
    events: EventBus
    seek: Callable[[Mapping[TopicPartition, int]], None]  # to get over a damaged batch
    letters: DeadLetterProducer | None = None
    group: str = ""  # for the letters

    def raises(self, error: Unreadable) -> bool:
        """Whether its user is told; also of what time may mend, or where nobody knows the end."""
        endless = isinstance(error, CorruptRecords) and error.resume is None
        return self.policy == "raise" or error.retriable or endless

    async def met(self, error: Unreadable, is_there: Callable[[], bool]) -> None:
        """Deal with it so that reading can go on, or raise it.

        While its letter is written reading may go on elsewhere: then it is there no more.
        """
        if self.raises(error):
            raise error
        record = _record_of(error)
        partition = TopicPartition(record.topic, record.partition)
        if self.letters is not None:
            await self.letters.write(record, Failure(error, group=self.group))
        self.events.publish(RecordUnreadable(partition, record.offset, self.policy, str(error)))
        if isinstance(error, CorruptRecords) and error.resume is not None and is_there():
            self.seek({partition: error.resume})


def _record_of(error: Unreadable) -> Record:
    """Of a damaged batch there is no record: its place stands for it."""
    if isinstance(error, CorruptRecords):
        return Record(error.topic, error.partition, error.offset)
    return cast("Record", error.record)
