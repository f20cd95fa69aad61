"""Checks and conversions of the arguments of `AIOKafkaConsumer`."""

import re
from collections.abc import Iterable

from aiokafka import TopicPartition

from asyncconsumer import types
from asyncconsumer.group.subscription import with_flags


def converted(partitions: Iterable[TopicPartition]) -> list[types.TopicPartition]:
    """Return partitions of aiokafka as those of this package."""
    return [types.TopicPartition(*tp) for tp in partitions]


def names(topics: object) -> frozenset[str]:
    """Return topics as a set of names. Raise an error for a single name."""
    if not isinstance(topics, tuple | set | list | frozenset):
        raise TypeError("Topics should be list of strings")
    return frozenset(topics)


def check_limit(name: str, limit: int | None) -> None:
    """Raise an error unless a limit is a positive number or None."""
    if limit is not None and (not is_int(limit) or limit < 1):
        raise ValueError(f"`{name}` must be a positive Integer")


def is_int(number: object) -> bool:
    """Return whether `number` is an int."""
    return isinstance(number, int)


def prefix_pattern(pattern: str) -> re.Pattern[str]:
    """Return a pattern that matches the whole name of each topic whose beginning matches.

    aiokafka matches the beginning of names, and `Consumer` matches whole names.
    """
    try:
        beginning = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
    return re.compile(f"(?:{with_flags(beginning)}).*")
