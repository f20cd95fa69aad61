"""Subscriptions of ZooKeeper groups: named topics, a whitelist or a blacklist."""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.group.subscription import INTERNAL_TOPICS
from asyncconsumer.group.zookeeper.regex_matcher import Matcher, Steps
from asyncconsumer.group.zookeeper.regex_parser import PatternError
from asyncconsumer.zookeeper.paths import is_legal

_STEPS_PER_CHARACTER: Final = 32  # steps allowed for each character of the names to match
_STEPS_AT_LEAST: Final = 200_000


def allowed_steps(existing: Iterable[str]) -> Steps:
    """Return the step limit for matching a pattern against these topic names.

    Any client may register a pattern, so its cost is limited. Usual patterns take a few steps per
    character.
    """
    return Steps(_STEPS_AT_LEAST + _STEPS_PER_CHARACTER * sum(map(len, existing)))


@lru_cache(maxsize=8)  # members of a group usually have the same pattern
def matcher(expression: str) -> Matcher:
    """Compile a regular expression. Raise `PatternError` if it cannot be matched in linear time."""
    return Matcher(expression)


class PatternKind(enum.Enum):
    """The kind of a subscription. The values are those in ZooKeeper."""

    STATIC = "static"
    WHITE_LIST = "white_list"
    BLACK_LIST = "black_list"


@dataclass(frozen=True)
class StreamSubscription:
    """The number of streams that a member requests for each topic.

    A wildcard subscription has one key, its pattern. The pattern is the exact text in ZooKeeper,
    because all members must match the same text.
    """

    streams: Mapping[str, int]
    pattern: PatternKind = PatternKind.STATIC

    @property
    def expression(self) -> str:
        """The regular expression of a wildcard subscription."""
        return next(iter(self.streams), "")

    @property
    def key(self) -> tuple[str, ...]:
        """A key that is equal for equivalent subscriptions."""
        streams = sorted(self.streams.items())
        return (self.pattern.value, *(f"{count}*{topic}" for topic, count in streams))

    @property
    def wildcard(self) -> bool:
        """Whether a pattern selects the topics."""
        return self.pattern is not PatternKind.STATIC

    def takes(self, topic: str, *, exclude_internal: bool, steps: Steps | None = None) -> bool:
        """Return whether the subscription includes a topic.

        `steps` limits the work of matching a pattern. If more is needed, raise `TooManySteps`.
        """
        if not self.wildcard:
            return topic in self.streams
        if not is_legal(topic) or (exclude_internal and topic in INTERNAL_TOPICS):
            return False
        steps = allowed_steps([topic]) if steps is None else steps
        matches = matcher(self.expression).matches(topic, steps)
        return matches == (self.pattern is PatternKind.WHITE_LIST)

    def topics(self, existing: Iterable[str], *, exclude_internal: bool) -> dict[str, int]:
        """Return the number of streams of each included topic. A named topic need not exist.

        Raise `TooManySteps` if the pattern needs more steps than `allowed_steps`.
        """
        if not self.wildcard:
            return dict(self.streams)
        names = list(existing)
        count, steps = next(iter(self.streams.values()), 0), allowed_steps(names)
        return {
            topic: count
            for topic in names
            if self.takes(topic, exclude_internal=exclude_internal, steps=steps)
        }


class TopicFilter:
    """A topic filter by regular expression, with the syntax of Kafka's Scala consumer.

    Commas separate alternatives, whitespace is removed, and the whole name must match.
    """

    pattern: PatternKind

    def __init__(self, expression: str) -> None:
        self.expression = _cleaned(expression)
        try:
            matcher(self.expression)
        except PatternError as error:
            raise ConfigError(
                f"{type(self).__name__}({expression!r}) is not a regular expression that all "
                f"members of a ZooKeeper group support: {error}"
            ) from None
        if not self.expression:
            raise ConfigError(f"{type(self).__name__} needs an expression, such as 'orders.*'")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.expression!r})"

    def subscription(self, streams: int) -> StreamSubscription:
        """Return the subscription that a member with this number of streams registers."""
        return StreamSubscription(MappingProxyType({self.expression: streams}), self.pattern)


class Whitelist(TopicFilter):
    """A filter that includes all topics whose names match."""

    pattern = PatternKind.WHITE_LIST


class Blacklist(TopicFilter):
    """A filter that includes all topics whose names do not match."""

    pattern = PatternKind.BLACK_LIST


def _cleaned(expression: str) -> str:
    """Return the filter text as Kafka's own filters write it, because members must agree on it."""
    text = re.sub(r"\s", "", expression.strip().replace(",", "|"))
    return text.strip("\"'")
