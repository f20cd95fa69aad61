"""The handling of unreadable records: deserialization errors and corrupt batches."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias, cast

from asyncconsumer.consumer.dead_letters import DeadLetterProducer, Failure
from asyncconsumer.errors import CorruptRecords, DeserializationFailed
from asyncconsumer.events import EventBus, RecordUnreadable
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

Unreadable: TypeAlias = CorruptRecords | DeserializationFailed


class PoisonPolicy(NamedTuple):
    """The policy of the option `on_poison` for unreadable records, shared by all streams."""

    policy: str
    events: EventBus
    seek: Callable[[Mapping[TopicPartition, int]], None]  # skips a corrupt batch
    dead_letters: DeadLetterProducer | None = None
    group: str = ""  # named in the headers of dead letters

    def raises(self, error: Unreadable) -> bool:
        """Return whether the error is raised to the reader. Otherwise `apply` handles it.

        Retriable errors are always raised. Errors of corrupt batches are raised if the length of
        the batch is unknown, because the next batch cannot be found.
        """
        endless = isinstance(error, CorruptRecords) and error.resume is None
        return self.policy == "raise" or error.retriable or endless

    async def apply(self, error: Unreadable, is_there: Callable[[], bool]) -> None:
        """Handle an unreadable record or batch for which `raises` returned False.

        The record is skipped, and written to the dead letter topic if there is one. While it is
        written, the partition may be lost, or the user may seek. `is_there` returns whether the
        reader is still at the records of the error.
        """
        record = _record_of(error)
        partition = TopicPartition(record.topic, record.partition)
        if self.dead_letters is not None:
            await self.dead_letters.write(record, Failure(error, group=self.group))
        self.events.publish(RecordUnreadable(partition, record.offset, self.policy, str(error)))
        if isinstance(error, CorruptRecords) and error.resume is not None and is_there():
            self.seek({partition: error.resume})


def _record_of(error: Unreadable) -> Record:
    """Return the record that could not be read.

    For a corrupt batch, return an empty record at the offset of the batch.
    """
    if isinstance(error, CorruptRecords):
        return Record(error.topic, error.partition, error.offset)
    return cast("Record", error.record)
