"""What can be wrong with records."""

from asyncconsumer.errors.base import ConsumerError


class CorruptRecords(ConsumerError):
    """The bytes of a record set are damaged. What was good before them has been delivered.

    `offset` is the first offset that cannot be read and `reason` says why. `resume` is the first
    offset behind the damage, or None where nobody can know it: reading on there skips, and loses,
    what lies between.
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
        go_on = (
            f"To go on without them, read from offset {self.resume}"
            if self.resume is not None
            else "Where the damage ends is unknown: choose a later offset to go on at"
        )
        return (
            f"corrupt records in {self.topic}[{self.partition}] at offset {self.offset}: "
            f"{self.reason}. {go_on}, or restore the partition from a good replica."
        )


class OffsetUnavailable(ConsumerError):
    """The partition does not have the offset asked for. ``earliest`` and ``latest`` are its ends.

    Records up to ``earliest`` are gone for good, deleted by retention or by hand; an offset beyond
    ``latest`` never was, or was truncated.
    """

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        super().__init__(topic, partition, offset, earliest, latest)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.earliest = earliest
        self.latest = latest

    def __str__(self) -> str:
        what = (
            f"{self.earliest - self.offset} offsets before {self.earliest} are gone"
            if self.offset < self.earliest
            else f"the log ends at {self.latest}"
        )
        return (
            f"{self.topic}[{self.partition}] has no offset {self.offset}: {what}. Read from "
            f"{self.earliest} to {self.latest}, or set auto_offset_reset to earliest or latest."
        )


class TopicRecreated(ConsumerError):
    """The topic was deleted and made anew while it was read: its offsets mean other records now."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(topic, partition, offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        return (
            f"{self.topic} was deleted and created anew while {self.topic}[{self.partition}] was "
            f"read, up to offset {self.offset}: read it again from its beginning, or set "
            "auto_offset_reset to earliest or latest."
        )
