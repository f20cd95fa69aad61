"""The sending of outputs in one transaction, and the search for outputs that a topic rejected."""

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from asyncconsumer.errors import (
    ConfigError,
    ConsumerError,
    InvalidRecord,
    InvalidTopic,
    RecordListTooLarge,
    RecordTooLarge,
    TopicAccessDenied,
    UnknownTopicOrPartition,
)
from asyncconsumer.handlers.outputs import Outputs
from asyncconsumer.producer.bulk import send_bulk
from asyncconsumer.producer.producer import Producer

if TYPE_CHECKING:
    from asyncconsumer.producer.batch import RecordDelivery

_OF_A_RECORD: Final = (
    RecordTooLarge, RecordListTooLarge, InvalidRecord, InvalidTopic, TopicAccessDenied,
    UnknownTopicOrPartition, ConfigError,
)  # fmt: skip


def is_of_a_record(error: ConsumerError) -> bool:
    """Return whether an error means that a topic rejected one record, and may accept others."""
    return isinstance(error, _OF_A_RECORD)


class OutputSender:
    """A sender of the outputs in one transaction.

    With `tracked`, the error of each record is known, but sending takes four times as long.
    """

    def __init__(self, producer: Producer[Any, Any], *, tracked: bool) -> None:
        self._producer = producer
        self._tracked = tracked
        self._current: Outputs | None = None
        self._sent: list[tuple[Outputs, RecordDelivery]] = []

    async def send(self, each: Iterable[Outputs]) -> None:
        """Send all records of the outputs. Records of a partition are sent in order."""
        producer = self._producer
        if not self._tracked:
            await send_bulk(producer, chain.from_iterable(outputs.records for outputs in each))
            return
        for outputs in each:
            self._current = outputs
            for record in outputs.records:
                delivery = producer.send_now(*record) or await producer.send_bytes(*record)
                self._sent.append((outputs, delivery))
        self._current = None

    def refused(self, error: ConsumerError) -> Outputs | None:
        """Return the outputs with a record that its topic rejected, or None if there is none.

        `error` is the error that ended the transaction. Without `tracked`, the rejected record
        cannot be found.
        """
        if is_of_a_record(error):
            return self._current
        for outputs, delivery in self._sent:
            if delivery.error is not None and is_of_a_record(delivery.error):
                return outputs
        return None
