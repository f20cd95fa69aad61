"""The errors of this package as those of aiokafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiokafka import errors as theirs

from asyncconsumer import errors as ours

_KINDS: Final[list[tuple[type[ours.ConsumerError], type[Exception]]]] = [
    (ours.ClosedError, theirs.ConsumerStoppedError),
    (ours.NotAssigned, theirs.IllegalStateError),
    (ours.SubscriptionConflict, theirs.IllegalStateError),
    (ours.NoCommittedOffset, theirs.NoOffsetForPartitionError),
    (ours.OffsetUnavailable, theirs.OffsetOutOfRangeError),
    (ours.CorruptRecords, theirs.CorruptRecordException),
    (ours.AuthenticationFailed, theirs.AuthenticationFailedError),
    (ours.RequestTimedOut, theirs.KafkaTimeoutError),
    (ours.BrokerConnectionError, theirs.KafkaConnectionError),
    (ours.NoBrokerAnswered, theirs.KafkaConnectionError),
    (ours.ConcurrentRead, theirs.IllegalStateError),
]
_FENCED: Final = (ours.IllegalGeneration, ours.UnknownMemberId, ours.RebalanceInProgress)


def translate(error: ours.ConsumerError) -> Exception:
    """Return the error of aiokafka for an error of this package.

    A wrong option or argument stays a `ValueError`.
    """
    if isinstance(error, ours.BrokerError):
        return _made(theirs.for_code(error.code), error)
    if isinstance(error, ours.ConfigError):
        return ValueError(str(error))
    kinds = (theirs_kind for ours_kind, theirs_kind in _KINDS if isinstance(error, ours_kind))
    kind = next(kinds, theirs.KafkaError)
    return _made(kind, error)


def _made(kind: type[Exception], error: ours.ConsumerError) -> Exception:
    return kind(str(error))


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of this package as errors of aiokafka."""
    try:
        yield
    except ours.ConsumerError as error:
        raise translate(error) from error


@contextmanager
def translated_commit() -> Iterator[None]:
    """Raise the errors of a commit, with `CommitFailedError` for a member that is fenced."""
    try:
        with translated():
            yield
    except theirs.KafkaError as error:
        if isinstance(error.__cause__, _FENCED):
            raise theirs.CommitFailedError(str(error)) from error.__cause__
        raise
