"""A subscription as the user gives it: topics, a pattern, or partitions."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Self, TypeAlias

from asyncconsumer.errors import ConfigError, SubscriptionConflict
from asyncconsumer.group.subscription import PatternSubscription, Subscription, TopicSubscription
from asyncconsumer.offsets.store import is_offset
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition

ToAssign: TypeAlias = Iterable[TopicPartition] | Mapping[TopicPartition, int | None]
"""Partitions, or a mapping to start offsets: a number, EARLIEST, LATEST, or None for committed."""


class ManualPartitions(frozenset[TopicPartition]):
    """Manually assigned partitions, with their start offsets if given."""

    starts: dict[TopicPartition, int]

    def __new__(cls, starts: Mapping[TopicPartition, int | None]) -> Self:
        """Create the set from a mapping to start offsets, with None for no offset."""
        made = super().__new__(cls, starts)
        made.starts = {one: at for one, at in starts.items() if at is not None}
        return made


Wish: TypeAlias = Subscription | ManualPartitions


def parse_subscription(
    topics: Collection[str],
    pattern: str | re.Pattern[str] | None,
    partitions: ToAssign | None,
) -> Wish | None:
    """Return the subscription, or None if all arguments are empty. Raise for more than one kind."""
    given: list[Wish] = []
    if topics:
        check_names(topics)
        given.append(TopicSubscription(topics))
    if pattern is not None:
        given.append(PatternSubscription(pattern))
    if partitions is not None:
        given.append(manual_partitions(partitions))
    if len(given) > 1:
        raise SubscriptionConflict(named(given[0]), named(given[1]))
    return given[0] if given else None


def manual_partitions(given: ToAssign) -> ManualPartitions:
    """Return the manual assignment; raise for an invalid partition or offset."""
    if not isinstance(given, Mapping):
        return ManualPartitions(dict.fromkeys(partitions_of(given)))
    for one, at in given.items():
        if at is not None and not is_offset(at) and at not in (EARLIEST, LATEST):
            raise ConfigError(
                f"{one} cannot be assigned at offset {at!r}: give a whole number from 0 on, "
                "EARLIEST, LATEST, or None for the committed offset"
            )
    return ManualPartitions({partition_of(one): at for one, at in given.items()})


def check_names(topics: Collection[object]) -> None:
    """Raise if a topic name is not a string or is empty."""
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise ConfigError(f"{topic!r} is no topic: give names, one argument each")


def partitions_of(given: object) -> list[TopicPartition]:
    """Return partitions from TopicPartitions or plain pairs; raise for anything else."""
    if not isinstance(given, Iterable) or isinstance(given, str | TopicPartition):
        raise ConfigError(
            f"{given!r} is no list of partitions: give [TopicPartition(topic, number)]"
        )
    return [partition_of(one) for one in given]


def partition_of(given: object) -> TopicPartition:
    """Return a TopicPartition from a plain pair or aiokafka's type; raise otherwise."""
    match given:
        case (str(topic), int(number)) if topic and number >= 0 and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise ConfigError(f"{given!r} is no partition: give TopicPartition(topic, number)")


def named(wish: Wish) -> str:
    """Return the description of a subscription for errors and the progress bar."""
    if isinstance(wish, frozenset):
        return f"{len(wish)} partitions assigned by hand"
    return f"a pattern ({wish})" if isinstance(wish, PatternSubscription) else f"topics ({wish})"
