"""Errors of partitions that have no valid offset, which aiokafka raises until a seek."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from aiokafka import TopicPartition
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError

from asyncconsumer.errors import NoCommittedOffset, OffsetUnavailable


class OffsetErrors:
    """The errors of partitions that have no valid offset until a seek, by partition.

    A `Consumer` raises each of them once. aiokafka raises them for every call that reads the
    partition.
    """

    def __init__(self) -> None:
        self._errors: dict[TopicPartition, Exception] = {}

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Return a context manager that stores such an error if its block raises one.

        The error is raised as well.
        """
        try:
            yield
        except (NoOffsetForPartitionError, OffsetOutOfRangeError) as error:
            cause = error.__cause__
            if isinstance(cause, OffsetUnavailable):
                self._errors[TopicPartition(cause.topic, cause.partition)] = error
            elif isinstance(cause, NoCommittedOffset):
                self._errors[TopicPartition(*cause.partition)] = error
            raise

    @property
    def exist(self) -> bool:
        """Whether there are such errors."""
        return bool(self._errors)

    def check(self, partitions: Collection[tuple[str, int]]) -> None:
        """Raise the error of one of these partitions, if there is one."""
        for tp, error in self._errors.items():
            if tp in partitions:
                raise type(error)(*error.args)

    def resolve(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget the errors of partitions that have a new offset."""
        for tp in partitions:
            self._errors.pop(tp, None)
