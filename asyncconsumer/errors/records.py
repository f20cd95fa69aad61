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
