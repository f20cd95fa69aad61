"""The protocol of an offset store, and checks of offsets that users pass."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from asyncconsumer.errors import ConfigError, ConsumerError, PartlyCommitted
from asyncconsumer.types import TopicPartition


class OffsetStore(Protocol):
    """The interface of a store for the offsets of a group.

    An offset is that of the next record to read. A store accepts an offset that is smaller than the
    stored one. The caller must prevent unintended rewinds and concurrent commits, as `Committer`
    does. A call of either method may be cancelled, before or after it has had its effect.
    """

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the stored offset of each partition, or None without one."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the offset of each partition.

        If some partitions fail, raise `PartlyCommitted`, which names them. Any other error means
        that all failed.
        """


def commit_error(
    offsets: Mapping[TopicPartition, int], failed: Mapping[TopicPartition, ConsumerError]
) -> ConsumerError:
    """Return the error to raise when the partitions in `failed` were not committed.

    If all partitions in `offsets` failed, return the error of one of them, preferably one that is
    not retriable. Otherwise return a `PartlyCommitted`.
    """
    if failed.keys() >= offsets.keys():
        return min(failed.values(), key=lambda error: error.retriable)
    return PartlyCommitted(failed)


def failed_partitions(
    offsets: Iterable[TopicPartition], error: ConsumerError
) -> dict[TopicPartition, ConsumerError]:
    """Return the error of each partition in `offsets` that failed when a commit raised `error`.

    A `PartlyCommitted` names the partitions and their errors. Any other error applies to all.
    """
    if isinstance(error, PartlyCommitted):
        return {tp: error.failed[tp] for tp in offsets if tp in error.failed}
    return dict.fromkeys(offsets, error)


def check_store(store: object) -> None:
    """Raise `ConfigError` if `store` is not an offset store."""
    if not (callable(getattr(store, "load", None)) and callable(getattr(store, "commit", None))):
        raise ConfigError(f"`offsets` is {store!r}; an OffsetStore needs load() and commit()")


def is_offset(offset: object) -> bool:
    """Return whether a value that a user passed, of any type, is a valid offset."""
    return isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 2**63


def check_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    """Raise `ConfigError` if an offset is invalid."""
    for partition, offset in offsets.items():
        if not is_offset(offset):
            raise ConfigError(
                f"the offset {offset!r} of {partition} is invalid; commit the offset of the next "
                "record to read, an int from 0"
            )


def check_loaded(loaded: object) -> None:
    """Raise `ConfigError` if `loaded`, the result of a user's store, has an invalid offset.

    For example, a store that returns -1 in place of None would make reading start at LATEST.
    """
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"the offset store loaded {loaded!r}: return a dict by partition")
    for partition, offset in loaded.items():
        if offset is not None and not is_offset(offset):
            raise ConfigError(
                f"the offset store loaded {offset!r} for {partition}: return the offset of the "
                "next record to read, or None where there is none"
            )
