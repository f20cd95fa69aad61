"""What a consumer is asked to read: topics, a pattern, or partitions; never two kinds at once."""

import re
from collections.abc import Collection, Iterable
from typing import TypeAlias

from asyncconsumer.errors import ConfigError, SubscriptionConflict
from asyncconsumer.group.subscription import Pattern, Subscription, Topics
from asyncconsumer.model import TopicPartition

Wish: TypeAlias = Subscription | frozenset[TopicPartition]


def wish_of(
    topics: Collection[str],
    pattern: str | re.Pattern[str] | None,
    partitions: Iterable[TopicPartition] | None,
) -> Wish | None:
    """What was asked for; None if nothing was. Raises for more than one kind."""
    given: list[Wish] = []
    if topics:
        check_names(topics)
        given.append(Topics(topics))
    if pattern is not None:
        given.append(Pattern(pattern))
    if partitions is not None:
        given.append(by_hand(partitions))
    if len(given) > 1:
        raise SubscriptionConflict(named(given[0]), named(given[1]))
    return given[0] if given else None


def by_hand(partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    """These partitions, if that is what they are; users may not check their types."""
    wanted = frozenset(partitions)
    given: Iterable[object] = wanted
    for one in given:
        if not isinstance(one, TopicPartition):
            raise ConfigError(f"{one!r} is no partition: give TopicPartition(topic, number)")
    return wanted


def check_names(topics: Collection[object]) -> None:
    """Raise for what is no name; users may not check their types."""
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise ConfigError(f"{topic!r} is no topic: give names, one argument each")


def named(wish: Wish) -> str:
    """What to call it in an error."""
    if isinstance(wish, frozenset):
        return f"{len(wish)} partitions assigned by hand"
    return f"a pattern ({wish})" if isinstance(wish, Pattern) else f"topics ({wish})"
