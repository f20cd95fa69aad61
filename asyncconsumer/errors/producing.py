"""Errors of producers: error codes in responses to Produce requests, and timeouts."""

from asyncconsumer.errors.base import ConsumerError
from asyncconsumer.errors.broker import BrokerError


class RecordTooLarge(BrokerError, code=10):
    """The record is larger than the topic accepts. Raise max.message.bytes of the topic."""


class RecordListTooLarge(BrokerError, code=18):
    """The records of one request are larger than a log segment. Raise the topic's segment.bytes."""


class NotEnoughReplicas(BrokerError, code=19, retriable=True):
    """Fewer replicas are in sync than min.insync.replicas requires."""


class NotEnoughReplicasAfterAppend(BrokerError, code=20, retriable=True):
    """The leader has written the records, but fewer replicas than min.insync.replicas have them."""


class OutOfOrderSequence(BrokerError, code=45):
    """The producer's sequence number does not follow the last one that the broker has."""


class DuplicateSequence(BrokerError, code=46):
    """The broker already has records with this sequence number, and does not know their offset."""


class InvalidProducerEpoch(BrokerError, code=47):
    """A producer with the same id and a newer epoch has written to the partition."""


class InvalidTransactionState(BrokerError, code=48):
    """The coordinator has no open transaction of this producer, or is ending it."""


class InvalidProducerIdMapping(BrokerError, code=49):
    """The transactional id now has another producer id, or the transactional id has expired."""


class InvalidTransactionTimeout(BrokerError, code=50):
    """The `transaction_timeout_ms` is larger than transaction.max.timeout.ms of the brokers."""


class ConcurrentTransactions(BrokerError, code=51, retriable=True):
    """The producer's last transaction is still being completed."""


class TransactionCoordinatorFenced(BrokerError, code=52):
    """Another broker has become the coordinator of the transaction."""


class OperationNotAttempted(BrokerError, code=55, retriable=True):
    """The coordinator did not add a partition to the transaction, because another failed."""


class UnknownProducerId(BrokerError, code=59):
    """The broker no longer knows the producer, because its last records were deleted."""


class InvalidRecord(BrokerError, code=87):
    """The broker rejects the record. For example, a compacted topic requires a key."""


class ProducerFenced(BrokerError, code=90):
    """Another producer has the same `transactional_id`, or the transaction timed out (fenced)."""


class TransactionAbortable(BrokerError, code=120):
    """The transaction cannot be committed. Abort it, then write its records again."""


class TransactionAborted(ConsumerError):
    """A record or an offset of a transaction failed, so the transaction was aborted.

    `cause` is the error of the first record or offset that failed.
    """

    def __init__(self, transactional_id: str, cause: ConsumerError) -> None:
        super().__init__(transactional_id, cause)
        self.transactional_id = transactional_id
        self.cause = cause

    def __str__(self) -> str:
        return (
            f"the transaction of {self.transactional_id!r} was aborted: {self.cause}. Nothing of "
            "it is visible to readers with `isolation_level='read_committed'`; repeat its work"
        )


class TransactionInDoubt(ConsumerError):
    """The coordinator did not answer the commit of a transaction, which may be complete or not.

    `cause` is the last error. The next transaction begins when the coordinator has ended this one.
    """

    def __init__(self, transactional_id: str, cause: ConsumerError) -> None:
        super().__init__(transactional_id, cause)
        self.transactional_id = transactional_id
        self.cause = cause

    def __str__(self) -> str:
        return (
            f"the commit of a transaction of {self.transactional_id!r} has no result: {self.cause}."
            " It may be complete. Read the committed offsets before its work is repeated"
        )


class DeliveryTimedOut(ConsumerError):
    """A record was not acknowledged within `delivery_timeout_ms`. It may have been written."""

    def __init__(self, tp: object, milliseconds: int, last: ConsumerError | None) -> None:
        super().__init__(tp, milliseconds, last)
        self.tp = tp
        self.milliseconds = milliseconds
        self.last = last

    def __str__(self) -> str:
        reason = "the partition has no reachable leader" if self.last is None else str(self.last)
        return (
            f"a record for {self.tp} was not acknowledged within {self.milliseconds} ms "
            f"(`delivery_timeout_ms`): {reason}. It may have been written"
        )


class SerializationFailed(ConsumerError):
    """A key or value cannot be serialized. The text of this error does not quote the value."""

    def __init__(
        self, part: str, topic: str, kind: str, reason: str, *, retriable: bool = False
    ) -> None:
        super().__init__(part, topic, kind, reason)
        self.part = part
        self.topic = topic
        self.kind = kind
        self.reason = reason
        self.retriable = retriable

    def __str__(self) -> str:
        return (
            f"the {self.part} of a record for {self.topic}, of type {self.kind}, cannot be "
            f"serialized: {self.reason}"
        )
