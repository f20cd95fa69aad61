"""The translation of this package's errors to those of aiokafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiokafka import TopicPartition
from aiokafka import errors as aiokafka_errors

from asyncconsumer import errors

_KINDS: Final[list[tuple[type[errors.ConsumerError], type[Exception]]]] = [
    (errors.ClosedError, aiokafka_errors.ConsumerStoppedError),
    (errors.NotAssigned, aiokafka_errors.IllegalStateError),
    (errors.SubscriptionConflict, aiokafka_errors.IllegalStateError),
    (errors.CorruptRecords, aiokafka_errors.CorruptRecordException),
    (errors.AuthenticationFailed, aiokafka_errors.AuthenticationFailedError),
    (errors.RequestTimedOut, aiokafka_errors.KafkaTimeoutError),
    (errors.BrokerConnectionError, aiokafka_errors.KafkaConnectionError),
    (errors.NoBrokerAnswered, aiokafka_errors.KafkaConnectionError),
    (errors.ConcurrentRead, aiokafka_errors.IllegalStateError),
]
_FENCED: Final = (errors.IllegalGeneration, errors.UnknownMemberId, errors.RebalanceInProgress)


def translate(error: errors.ConsumerError) -> Exception:
    """Return aiokafka's error for an error of this package.

    For a ConfigError, which reports a wrong option or argument, it is a `ValueError`. Errors of
    partitions without a valid offset have aiokafka's arguments, which programs read.
    """
    if isinstance(error, errors.OffsetUnavailable):
        tp = TopicPartition(error.topic, error.partition)
        return _made(aiokafka_errors.OffsetOutOfRangeError, {tp: error.offset})
    if isinstance(error, errors.NoCommittedOffset):
        tp = TopicPartition(*error.partition)
        return _made(aiokafka_errors.NoOffsetForPartitionError, tp)
    if isinstance(error, errors.BrokerError):
        return _made(aiokafka_errors.for_code(error.code), str(error))
    if isinstance(error, errors.ConfigError):
        return ValueError(str(error))
    kinds = (result for kind, result in _KINDS if isinstance(error, kind))
    kind = next(kinds, aiokafka_errors.KafkaError)
    return _made(kind, str(error))


def _made(kind: type[Exception], argument: object) -> Exception:
    return kind(argument)


@contextmanager
def translated() -> Iterator[None]:
    """Return a context manager that raises this package's errors as those of aiokafka."""
    try:
        yield
    except errors.ConsumerError as error:
        raise translate(error) from error


@contextmanager
def translated_commit() -> Iterator[None]:
    """Return a context manager that raises a commit's errors as those of aiokafka.

    If the member was fenced, the error is a `CommitFailedError`.
    """
    try:
        with translated():
            yield
    except aiokafka_errors.KafkaError as error:
        if isinstance(error.__cause__, _FENCED):
            raise aiokafka_errors.CommitFailedError(str(error)) from error.__cause__
        raise
