"""Every error of this package, by whose turn it is to act."""

from typing import ClassVar


class ConsumerError(Exception):
    """Root. ``retriable`` is the only thing retry loops may look at."""

    retriable: ClassVar[bool] = False


class ConfigError(ConsumerError, ValueError):
    """You must act: an option, or a pair of options, makes no sense."""


class ClosedError(ConsumerError):
    """You must act: *your* code already closed this object."""


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


class MalformedResponse(ConsumerError):
    """A broker's answer does not follow the protocol; close its connection and ask again."""

    retriable = True

    def __init__(self, api: str, version: int, position: int, reason: str) -> None:
        super().__init__(api, version, position, reason)
        self.api = api
        self.version = version
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"malformed {self.api} response (version {self.version}) at byte {self.position}: "
            f"{self.reason}. Close the connection: nothing behind this can be trusted."
        )
