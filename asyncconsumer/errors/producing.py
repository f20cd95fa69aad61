"""The broker's refusals of records that were sent to it."""

from asyncconsumer.errors.broker import BrokerError


class RecordTooLarge(BrokerError, code=10):
    """The record is larger than the topic takes: raise its max.message.bytes."""


class RecordListTooLarge(BrokerError, code=18):
    """The records of one request are more bytes than a segment of the topic's log."""


class NotEnoughReplicas(BrokerError, code=19, retriable=True):
    """Fewer replicas are in sync than min.insync.replicas asks for."""


class NotEnoughReplicasAfterAppend(BrokerError, code=20, retriable=True):
    """The leader has the records, and fewer replicas than min.insync.replicas have them."""


class OutOfOrderSequence(BrokerError, code=45):
    """The producer's sequence number does not follow the last one that the broker has."""


class DuplicateSequence(BrokerError, code=46):
    """The broker has records of this sequence number already, and not where they are."""


class InvalidProducerEpoch(BrokerError, code=47):
    """A newer epoch of this producer has written to the partition."""


class UnknownProducerId(BrokerError, code=59):
    """The broker does not know the producer any more: its last records were deleted."""


class InvalidRecord(BrokerError, code=87):
    """The broker does not take the record: a compacted topic, for instance, needs a key."""
