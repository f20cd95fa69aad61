"""Errors of memberships, subscriptions and streams."""

from collections.abc import Collection, Iterable

from asyncconsumer.errors.base import ConsumerError
from asyncconsumer.types import TopicPartition


class ConsumerRebalanceFailed(ConsumerError):
    """A member could not claim its assigned partitions. The member continues to retry."""

    retriable = True

    def __init__(self, consumer_id: str, attempts: int, reason: str) -> None:
        super().__init__(consumer_id, attempts, reason)
        self.consumer_id = consumer_id
        self.attempts = attempts
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.consumer_id} can't rebalance after {self.attempts} attempts: {self.reason}. It "
            "keeps trying. Find the member that owns these partitions, or raise "
            "`rebalance_max_retries` or `rebalance_backoff_ms`"
        )


class MemberExists(ConsumerError):
    """Another live member of the group has the same consumer id."""

    def __init__(self, group: str, consumer_id: str) -> None:
        super().__init__(group, consumer_id)
        self.group = group
        self.consumer_id = consumer_id

    def __str__(self) -> str:
        return (
            f"group {self.group!r} already has a live member {self.consumer_id!r}. Set another "
            "`consumer_id` for each member, or none to have one generated"
        )


class ConcurrentRead(ConsumerError, RuntimeError):
    """A second task reads a stream while the first one processes a record or waits for one."""

    def __init__(self, holder: str, *, waiting: bool) -> None:
        super().__init__(holder, waiting)
        self.holder = holder
        self.waiting = waiting

    def __str__(self) -> str:
        does = "already waits for the next record" if self.waiting else "still processes a record"
        return (
            f"two tasks read one stream: task {self.holder!r} {does}. Give each task a stream of "
            "its own with consumer.streams(n), or let ConsumerApp run handlers concurrently"
        )


class ConsumerTimeout(ConsumerError):
    """No record arrived within ``consumer_timeout_ms``. The stream can be read again."""

    retriable = True

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self.timeout_ms = timeout_ms

    def __str__(self) -> str:
        return (
            f"no record arrived within {self.timeout_ms} ms (`consumer_timeout_ms`). Read again to "
            "wait longer, or remove the option to wait without limit. Set `idle_timeout_ms` "
            "instead to end the loop. The option of this name in aiokafka is not needed here"
        )


class PollIntervalExceeded(ConsumerError):
    """No record was requested within ``max_poll_interval_ms``, so the member left the group."""

    def __init__(self, group: str, interval_ms: int) -> None:
        super().__init__(group, interval_ms)
        self.group = group
        self.interval_ms = interval_ms

    def __str__(self) -> str:
        return (
            f"no record was requested within {self.interval_ms} ms (`max_poll_interval_ms`), so "
            f"this consumer left group {self.group!r} and other members read its partitions. Call "
            "subscribe() to join again. Raise or remove the option if processing takes longer"
        )


class StreamsExist(ConsumerError):
    """The streams of a connector were already created."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"this connector of group {self.group!r} already has its streams. Name all topics in "
            "one call, or create another connector"
        )


class ListenerFailed(ConsumerError):
    """A rebalance listener raised an exception, which is the cause of this error."""

    def __init__(self, callback: str, reason: str) -> None:
        super().__init__(callback, reason)
        self.callback = callback
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the rebalance listener failed in {self.callback}: {self.reason}. The consumer has "
            "stopped. Handle the exception in the listener"
        )


class NotAssigned(ConsumerError):
    """A partition is not assigned to this consumer, or not any more."""

    def __init__(self, partition: object, assigned: Collection[object]) -> None:
        super().__init__(partition, assigned)
        self.partition = partition
        self.assigned = sorted(map(str, assigned))

    def __str__(self) -> str:
        assigned = ", ".join(self.assigned[:5]) + (" ..." if len(self.assigned) > 5 else "")
        return (
            f"{self.partition} is not assigned to this consumer, which has "
            f"{assigned or 'no partitions'}. Check `assignment` first, or make the call in "
            "on_partitions_assigned"
        )


class NoCommittedOffset(ConsumerError):
    """A partition has no committed offset, and ``auto_offset_reset`` is "none"."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(partition)
        self.partition = partition

    def __str__(self) -> str:
        return (
            f"{self.partition} has no committed offset and `auto_offset_reset` is 'none', so it is "
            "not read. Call seek(), seek_to_beginning() or seek_to_end() for it and continue, or "
            "set `auto_offset_reset` to 'earliest' or 'latest'"
        )


class SubscriptionConflict(ConsumerError):
    """A consumer cannot combine topics, a pattern and manually assigned partitions."""

    def __init__(self, current: str, requested: str) -> None:
        super().__init__(current, requested)
        self.current = current
        self.requested = requested

    def __str__(self) -> str:
        return (
            f"this consumer has {self.current} and cannot have {self.requested} as well. Call "
            "`await consumer.unsubscribe()` first, or create another consumer"
        )


class TransactionFenced(ConsumerError):
    """A rebalance revoked partitions of an open transaction, which was aborted."""

    def __init__(self, group: str, partitions: Iterable[object]) -> None:
        super().__init__(group, tuple(partitions))
        self.group = group
        self.partitions = tuple(partitions)

    def __str__(self) -> str:
        partitions = ", ".join(sorted(map(str, self.partitions))) or "all partitions"
        return (
            f"group {self.group!r} may have assigned {partitions} to another member during a "
            "transaction, which was aborted. Continue consuming. The new owner will process the "
            "records again"
        )


class DeserializationFailed(ConsumerError):
    """A key or value could not be deserialized. The deserializer's exception is the cause.

    The error is retriable if its cause may disappear, for example because a schema registry is
    unavailable. Its text and repr contain no record data. The text of its cause may contain some.
    """

    def __init__(
        self, part: str, record: object, place: str, reason: str, *, retriable: bool = False
    ) -> None:
        super().__init__(part, place, reason)  # without the record, which its repr would show
        self.part = part
        self.record = record
        self.place = place
        self.reason = reason
        self.retriable = retriable

    def __str__(self) -> str:
        return (
            f"the {self.part} of {self.place} cannot be deserialized: {self.reason}. See "
            "`record` of this error for the bytes and `__cause__` for the exception. To skip such "
            "records, set `on_poison` of the consumer or `on_error` of the handler"
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Include the record when the error is pickled, because `args` does not have it."""
        return type(self), (self.part, self.record, self.place, self.reason), vars(self)


class ConsumerProtocolUnsupported(ConsumerError):
    """The coordinator does not support the consumer group protocol of KIP-848."""

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(group, reason)
        self.group = group
        self.reason = reason

    def __str__(self) -> str:
        return (
            f'group {self.group!r} can\'t use `group_protocol="consumer"`: {self.reason}. It needs '
            'Kafka 4.0 or newer with group.version 1. Set `group_protocol="classic"` otherwise'
        )
