"""The subscription that the user passes: topics, a pattern, or partitions."""

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
        """Create the set of the partitions in `starts`, which maps them to start offsets.

        An offset of None means the committed offset. The attribute `starts` leaves out these
        partitions.
        """
        self = super().__new__(cls, starts)
        self.starts = {tp: offset for tp, offset in starts.items() if offset is not None}
        return self


SubscriptionSpec: TypeAlias = Subscription | ManualPartitions


def parse_subscription(
    topics: Collection[str],
    pattern: str | re.Pattern[str] | None,
    partitions: ToAssign | None,
) -> SubscriptionSpec | None:
    """Return the subscription that the arguments describe, or None if all of them are empty.

    Raise SubscriptionConflict if they describe more than one kind.
    """
    specs: list[SubscriptionSpec] = []
    if topics:
        check_topic_names(topics)
        specs.append(TopicSubscription(topics))
    if pattern is not None:
        specs.append(PatternSubscription(pattern))
    if partitions is not None:
        specs.append(manual_partitions(partitions))
    if len(specs) > 1:
        raise SubscriptionConflict(describe(specs[0]), describe(specs[1]))
    return specs[0] if specs else None


def manual_partitions(partitions: ToAssign) -> ManualPartitions:
    """Return the manual assignment. Raise ConfigError for an invalid partition or offset."""
    if not isinstance(partitions, Mapping):
        return ManualPartitions(dict.fromkeys(partitions_of(partitions)))
    for tp, offset in partitions.items():
        if offset is not None and not is_offset(offset) and offset not in (EARLIEST, LATEST):
            raise ConfigError(
                f"{tp} cannot be assigned at offset {offset!r}. Pass a whole number from 0 on, "
                "EARLIEST, LATEST, or None for the committed offset"
            )
    return ManualPartitions({partition_of(tp): offset for tp, offset in partitions.items()})


def check_topic_names(topics: Collection[object]) -> None:
    """Raise ConfigError if a topic name is not a string or is empty."""
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise ConfigError(
                f"{topic!r} is not a topic name. Pass each name as an argument of its own"
            )


def partitions_of(partitions: object) -> list[TopicPartition]:
    """Return partitions from TopicPartitions or plain pairs. Raise ConfigError for other values."""
    if not isinstance(partitions, Iterable) or isinstance(partitions, str | TopicPartition):
        raise ConfigError(
            f"{partitions!r} is not a list of partitions. Pass [TopicPartition(topic, number)]"
        )
    return [partition_of(partition) for partition in partitions]


def offsets_by_partition(offsets: object) -> dict[TopicPartition, int]:
    """Return `offsets` with TopicPartitions as keys. Raise ConfigError if it is no mapping."""
    if not isinstance(offsets, Mapping):
        raise ConfigError(
            f"cannot commit {offsets!r}. Pass a record, or a mapping of partitions to offsets"
        )
    return {partition_of(tp): offset for tp, offset in offsets.items()}


def partition_of(partition: object) -> TopicPartition:
    """Return a TopicPartition from a plain pair or from aiokafka's type.

    Raise ConfigError for anything else.
    """
    match partition:
        case (str(topic), int(number)) if topic and number >= 0 and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise ConfigError(f"{partition!r} is not a partition. Pass TopicPartition(topic, number)")


def describe(spec: SubscriptionSpec) -> str:
    """Return a short text about a subscription, for errors and the progress bar."""
    if isinstance(spec, frozenset):
        return f"{len(spec)} manually assigned partitions"
    return f"a pattern ({spec})" if isinstance(spec, PatternSubscription) else f"topics ({spec})"
