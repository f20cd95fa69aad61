"""The sending of outputs in one transaction, and the search for outputs that a topic rejected."""

from collections.abc import Iterable
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
from asyncconsumer.producer.producer import Producer

if TYPE_CHECKING:
    from asyncconsumer.producer.batch import RecordDelivery

_OF_A_RECORD: Final = (
    RecordTooLarge, RecordListTooLarge, InvalidRecord, InvalidTopic, TopicAccessDenied,
    UnknownTopicOrPartition, ConfigError,
)  # fmt: skip


class OutputSender:
    """The records that were sent in one transaction, with their deliveries."""

    def __init__(self, producer: Producer[Any, Any]) -> None:
        self._producer = producer
        self._current: Outputs | None = None
        self._sent: list[tuple[Outputs, RecordDelivery]] = []

    async def send(self, each: Iterable[Outputs]) -> None:
        """Send all records of the outputs, in order."""
        producer = self._producer
        for outputs in each:
            self._current = outputs
            for record in outputs.records:
                delivery = producer.send_now(*record) or await producer.send_bytes(*record)
                self._sent.append((outputs, delivery))
        self._current = None

    def refused(self, error: ConsumerError) -> Outputs | None:
        """Return the outputs with a record that its topic rejected, or None if there is none.

        `error` is the error that ended the transaction.
        """
        if isinstance(error, _OF_A_RECORD):
            return self._current
        for outputs, delivery in self._sent:
            if isinstance(delivery.error, _OF_A_RECORD):
                return outputs
        return None
