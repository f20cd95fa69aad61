"""Error codes of brokers in responses to Produce requests."""

from asyncconsumer.errors.broker import BrokerError


class RecordTooLarge(BrokerError, code=10):
    """The record is larger than the topic accepts; raise its max.message.bytes."""


class RecordListTooLarge(BrokerError, code=18):
    """The records of one request are larger than a log segment; raise segment.bytes."""


class NotEnoughReplicas(BrokerError, code=19, retriable=True):
    """Fewer replicas are in sync than min.insync.replicas requires."""


class NotEnoughReplicasAfterAppend(BrokerError, code=20, retriable=True):
    """The leader has the records, but fewer replicas than min.insync.replicas have them."""


class OutOfOrderSequence(BrokerError, code=45):
    """The producer's sequence number does not follow the last one that the broker has."""


class DuplicateSequence(BrokerError, code=46):
    """The broker already has records with this sequence number, and does not know their offset."""


class InvalidProducerEpoch(BrokerError, code=47):
    """A producer with the same id and a newer epoch has written to the partition."""


class UnknownProducerId(BrokerError, code=59):
    """The broker no longer knows the producer, because its last records were deleted."""


class InvalidRecord(BrokerError, code=87):
    """The broker rejects the record; for example, a compacted topic requires a key."""
