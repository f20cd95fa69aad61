"""What can go wrong with keeping offsets."""

from collections.abc import Mapping

from asyncconsumer.errors.base import ConsumerError
from asyncconsumer.types import TopicPartition


class PartlyCommitted(ConsumerError):
    """The offsets of some partitions were not committed; those of all the others were.

    ``failed`` has the error of each. It may be tried again if that may help all of them.
    """

    def __init__(self, failed: Mapping[TopicPartition, ConsumerError]) -> None:
        super().__init__(failed)
        self.failed = failed
        self.retriable = all(error.retriable for error in failed.values())

    def __str__(self) -> str:
        (where, error), *others = self.failed.items()
        more = f" (and those of {len(others)} more)" if others else ""
        return f"the offset of {where}{more} was not committed, others were: {error}"


class NothingClaimed(ConsumerError):
    """No partition is claimed in any ZooKeeper session, so no offset may be committed there."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"group {self.group!r}: no partition is claimed at the moment, so nothing may be "
            "committed. Wait until partitions are assigned"
        )


class StoreFailed(ConsumerError):
    """An offset store of the user's own raised. Its exception is the cause of this one."""

    retriable = True

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"the offset store failed to {self.what}: {self.reason}"
