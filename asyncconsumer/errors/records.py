"""Errors of records and offsets in a log."""

from asyncconsumer.errors.base import ConsumerError


class CorruptRecords(ConsumerError):
    """The bytes of a record set are corrupt. The records before them have been delivered.

    `offset` is the first offset that cannot be read, and `reason` says why. `resume` is the first
    offset after the corrupt bytes, or None if it is unknown. Reading from `resume` skips the
    corrupt records.
    """

    def __init__(
        self, topic: str, partition: int, offset: int, reason: str, resume: int | None = None
    ) -> None:
        super().__init__(topic, partition, offset, reason, resume)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason
        self.resume = resume

    def __str__(self) -> str:
        advice = (
            f"To skip them, read from offset {self.resume}"
            if self.resume is not None
            else "It is unknown where the corrupt bytes end: choose a later offset"
        )
        return (
            f"corrupt records in {self.topic}[{self.partition}] at offset {self.offset}: "
            f"{self.reason}. {advice}, or restore the partition from a good replica"
        )


class OffsetUnavailable(ConsumerError):
    """The partition does not have the requested offset.

    ``earliest`` and ``latest`` are the bounds of the log. Records before ``earliest`` were deleted.
    An offset after ``latest`` never existed, or was truncated.
    """

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        super().__init__(topic, partition, offset, earliest, latest)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.earliest = earliest
        self.latest = latest

    def __str__(self) -> str:
        reason = (
            f"{self.earliest - self.offset} offsets before {self.earliest} are gone"
            if self.offset < self.earliest
            else f"the log ends at {self.latest}"
        )
        return (
            f"{self.topic}[{self.partition}] has no offset {self.offset}: {reason}. Read from "
            f"{self.earliest} to {self.latest}, or set `auto_offset_reset` to earliest or latest"
        )


class TopicRecreated(ConsumerError):
    """The topic was deleted and re-created while it was read. Old offsets do not apply to it."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(topic, partition, offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        return (
            f"{self.topic} was deleted and re-created while {self.topic}[{self.partition}] was "
            f"read, up to offset {self.offset}. Read it from its beginning, or set "
            "`auto_offset_reset` to earliest or latest"
        )
