"""What can go wrong with a membership."""

from collections.abc import Collection, Iterable

from asyncconsumer.errors.base import ConsumerError


class ConsumerRebalanceFailed(ConsumerError):
    """A member could not get the partitions that are due to it. It goes on trying."""

    retriable = True

    def __init__(self, consumer_id: str, tries: int, reason: str) -> None:
        super().__init__(consumer_id, tries, reason)
        self.consumer_id = consumer_id
        self.tries = tries
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.consumer_id} can't rebalance after {self.tries} tries: {self.reason}. It goes "
            "on trying; see who holds those partitions, or raise rebalance_max_retries or "
            "rebalance_backoff_ms"
        )


class MemberExists(ConsumerError):
    """Another live member of the group has the same consumer id."""

    def __init__(self, group: str, consumer_id: str) -> None:
        super().__init__(group, consumer_id)
        self.group = group
        self.consumer_id = consumer_id

    def __str__(self) -> str:
        return (
            f"group {self.group!r} has a live member {self.consumer_id!r} already: give each its "
            "own consumer_id, or none to have one made up"
        )


class ConcurrentRead(ConsumerError, RuntimeError):
    """A second task reads a stream while the first one has a record in hand or waits for one."""

    def __init__(self, holder: str, *, waiting: bool) -> None:
        super().__init__(holder, waiting)
        self.holder = holder
        self.waiting = waiting

    def __str__(self) -> str:
        does = "already waits for the next record" if self.waiting else "still has a record in hand"
        return (
            f"two tasks read one stream: task {self.holder!r} {does}. Give each task a stream of "
            "its own with consumer.streams(n), or let ConsumerApp run handlers concurrently."
        )


class ConsumerTimeout(ConsumerError):
    """Nothing came in the time that consumer_timeout_ms allows. The stream can be read on."""

    retriable = True

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self.timeout_ms = timeout_ms

    def __str__(self) -> str:
        return (
            f"no record came within {self.timeout_ms} ms (consumer_timeout_ms). Go on reading to "
            "wait on, or leave the option out, which waits for ever; idle_timeout_ms ends the loop "
            "instead. aiokafka has another option of this name, which is not needed here"
        )


class PollIntervalExceeded(ConsumerError):
    """A reader did not ask for the next record within max_poll_interval_ms: it left the group."""

    def __init__(self, group: str, interval_ms: int) -> None:
        super().__init__(group, interval_ms)
        self.group = group
        self.interval_ms = interval_ms

    def __str__(self) -> str:
        return (
            f"no record was asked for within {self.interval_ms} ms (max_poll_interval_ms), so this "
            f"consumer left group {self.group!r}, and others read its partitions. Call subscribe() "
            "to join again; raise the option, or leave it out, if the work takes longer"
        )


class StreamsExist(ConsumerError):
    """A connector makes its streams once."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"this connector of group {self.group!r} has its streams already: name all topics in "
            "one call, or make another connector"
        )


class ListenerFailed(ConsumerError):
    """A rebalance listener raised. Its own exception is the cause of this one."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"the listener failed in {self.what}: {self.reason}. The consumer has stopped"


class NotAssigned(ConsumerError):
    """A partition that is not, or no longer, ours."""

    def __init__(self, partition: object, ours: Collection[object]) -> None:
        super().__init__(partition, ours)
        self.partition = partition
        self.ours = sorted(map(str, ours))

    def __str__(self) -> str:
        ours = ", ".join(self.ours[:5]) + (" ..." if len(self.ours) > 5 else "")
        return (
            f"{self.partition} is not assigned to this consumer, which has {ours or 'none'}. "
            "Do it in on_partitions_assigned, or ask `assignment` first"
        )


class NoCommittedOffset(ConsumerError):
    """A partition has no committed offset, and auto_offset_reset is "none". A seek mends it."""

    def __init__(self, partition: object) -> None:
        super().__init__(partition)
        self.partition = partition

    def __str__(self) -> str:
        return (
            f"{self.partition} has no committed offset, and auto_offset_reset is 'none', so it is "
            "not read. Call seek(), seek_to_beginning() or seek_to_end() for it and read on, or "
            "set auto_offset_reset to 'earliest' or 'latest'"
        )


class SubscriptionConflict(ConsumerError):
    """Topics, a pattern and partitions assigned by hand do not mix."""

    def __init__(self, has: str, asked: str) -> None:
        super().__init__(has, asked)
        self.has = has
        self.asked = asked

    def __str__(self) -> str:
        return (
            f"this consumer has {self.has} and cannot have {self.asked} as well: "
            "`await consumer.unsubscribe()` first, or make another consumer"
        )


class TransactionFenced(ConsumerError):
    """A rebalance took partitions whose records are part of a transaction, which was aborted."""

    def __init__(self, group: str, partitions: Iterable[object]) -> None:
        super().__init__(group, tuple(partitions))
        self.group = group
        self.partitions = tuple(partitions)

    def __str__(self) -> str:
        what = ", ".join(map(str, sorted(map(str, self.partitions)))) or "everything"
        return (
            f"group {self.group} may have given {what} to another member while a transaction was "
            "open: it was aborted. Read on: whoever has them now makes it again"
        )


class DeserializationFailed(ConsumerError):
    """A key or value could not be deserialized. What the deserializer raised is the cause.

    If it may be tried again the record is not bad: a schema registry does not answer, or the like.
    Its text and its repr show nothing of the record; the cause may.
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
            f"the {self.part} of {self.place} cannot be deserialized: {self.reason}. The error's "
            "`record` has its bytes, and its `__cause__` says more"
        )

    def __reduce__(self) -> tuple[object, ...]:
        """What a copy is made from."""
        return type(self), (self.part, self.record, self.place, self.reason), vars(self)


class ConsumerProtocolUnsupported(ConsumerError):
    """The coordinator does not speak the consumer group protocol of KIP-848, or it is off."""

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(group, reason)
        self.group = group
        self.reason = reason

    def __str__(self) -> str:
        return (
            f'group {self.group!r} can\'t use group_protocol="consumer": {self.reason}. It needs '
            'Kafka 4.0 or newer with group.version 1; group_protocol="classic" works everywhere'
        )
