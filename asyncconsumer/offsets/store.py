"""Where the offsets of a group are kept, whatever it is: two methods."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from asyncconsumer.errors import ConfigError, ConsumerError, PartlyCommitted
from asyncconsumer.types import TopicPartition


class OffsetStore(Protocol):
    """A group's offsets, each that of the next record to read.

    A store does as it is told: an offset may also be less than the one before. Who commits sees to
    it that none goes back unmeant, and that there is one commit at a time (`Committer` does both).
    Either method may be cancelled; what it has begun may then be done or not.
    """

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offset of each partition; None where there is none."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep them. PartlyCommitted says which were not kept, any other error that none was."""


def commit_error(
    offsets: Mapping[TopicPartition, int], failed: Mapping[TopicPartition, ConsumerError]
) -> ConsumerError:
    """What to raise when some of these offsets were not committed.

    If none was, it is their own error, and rather one that time does not mend.
    """
    if failed.keys() >= offsets.keys():
        return min(failed.values(), key=lambda error: error.retriable)
    return PartlyCommitted(failed)


def failed_partitions(
    offsets: Iterable[TopicPartition], error: ConsumerError
) -> dict[TopicPartition, ConsumerError]:
    """Which of these partitions a store's error is about."""
    if isinstance(error, PartlyCommitted):
        return {one: error.failed[one] for one in offsets if one in error.failed}
    return dict.fromkeys(offsets, error)


def check_store(store: object) -> None:
    """Raise for what is none."""
    if not (callable(getattr(store, "load", None)) and callable(getattr(store, "commit", None))):
        raise ConfigError(f"offsets={store!r} is no OffsetStore: it needs load() and commit()")


def is_offset(offset: object) -> bool:
    """Whether a record could have it; users may not check their types."""
    return isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 2**63


def check_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    """Raise for what can be no offset."""
    for partition, offset in offsets.items():
        if not is_offset(offset):
            raise ConfigError(
                f"offset {offset!r} of {partition}: commit a whole number from 0, that of the "
                "next record to read"
            )


def check_loaded(found: object) -> None:
    """Raise for what no store may answer: a -1, where there is none, would mean the log's end."""
    if not isinstance(found, Mapping):
        raise ConfigError(f"the offset store loaded {found!r}: return a dict by partition")
    for partition, offset in found.items():
        if offset is not None and not is_offset(offset):
            raise ConfigError(
                f"the offset store loaded {offset!r} for {partition}: return the offset of the "
                "next record to read, or None where there is none"
            )
