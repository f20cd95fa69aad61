"""Errors of offset stores."""

from collections.abc import Mapping

from asyncconsumer.errors.base import ConsumerError
from asyncconsumer.types import TopicPartition


class PartlyCommitted(ConsumerError):
    """The offsets of some partitions were committed, and those of other partitions were not.

    ``failed`` has the error of each failed partition. This error is retriable if all errors in
    ``failed`` are.
    """

    def __init__(self, failed: Mapping[TopicPartition, ConsumerError]) -> None:
        super().__init__(failed)
        self.failed = failed
        self.retriable = all(error.retriable for error in failed.values())

    def __str__(self) -> str:
        (tp, error), *others = self.failed.items()
        more = f" and those of {len(others)} more" if others else ""
        return f"the offset of {tp}{more} was not committed, the other offsets were: {error}"


class NothingClaimed(ConsumerError):
    """The member owns no partition at the moment, so it may not commit offsets."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"group {self.group!r}: cannot commit offsets because this member owns no partition "
            "at the moment. Wait until partitions are assigned"
        )


class StoreFailed(ConsumerError):
    """A custom offset store raised an exception, which is the cause of this error."""

    retriable = True

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(operation, reason)
        self.operation = operation
        self.reason = reason

    def __str__(self) -> str:
        return f"the offset store failed to {self.operation}: {self.reason}"
