"""Which topics a subscription means: named ones, or all that a pattern takes or leaves out."""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.group.zookeeper.regex_matcher import Matcher, Steps
from asyncconsumer.group.zookeeper.regex_parser import PatternError
from asyncconsumer.zookeeper.paths import is_legal

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)

_STEPS_PER_CHARACTER: Final = 32  # of the names that a pattern is compared with
_STEPS_AT_LEAST: Final = 200_000


def allowed_steps(existing: Iterable[str]) -> Steps:
    """The steps that comparing patterns with these names may take.

    Anybody may register a pattern, so its cost is limited. Usual patterns take a few steps for
    each character.
    """
    return Steps(_STEPS_AT_LEAST + _STEPS_PER_CHARACTER * sum(map(len, existing)))


@lru_cache(maxsize=8)  # the members of a group usually share one pattern
def matcher(expression: str) -> Matcher:
    """The compiled pattern; PatternError if it cannot be matched in linear time."""
    return Matcher(expression)


class PatternKind(enum.Enum):
    """How the keys of a subscription are meant; values are the words in ZooKeeper."""

    STATIC = "static"
    WHITE_LIST = "white_list"
    BLACK_LIST = "black_list"


@dataclass(frozen=True)
class StreamSubscription:
    """How many streams of which topics; for a pattern there is one key, the pattern.

    It is the text as it stands in ZooKeeper, so that all members read the same.
    """

    streams: Mapping[str, int]
    pattern: PatternKind = PatternKind.STATIC

    @property
    def expression(self) -> str:
        """The pattern of a wildcard."""
        return next(iter(self.streams), "")

    @property
    def key(self) -> tuple[str, ...]:
        """The same for subscriptions that mean the same."""
        streams = sorted(self.streams.items())
        return (self.pattern.value, *(f"{count}*{topic}" for topic, count in streams))

    @property
    def wildcard(self) -> bool:
        """Whether it means topics that are not named in it."""
        return self.pattern is not PatternKind.STATIC

    def takes(self, topic: str, *, exclude_internal: bool, steps: Steps | None = None) -> bool:
        """Whether it means a topic. TooManySteps if finding out takes more steps than allowed."""
        if not self.wildcard:
            return topic in self.streams
        if not is_legal(topic) or (exclude_internal and topic in INTERNAL_TOPICS):
            return False
        steps = allowed_steps([topic]) if steps is None else steps
        matches = matcher(self.expression).matches(topic, steps)
        return matches == (self.pattern is PatternKind.WHITE_LIST)

    def topics(self, existing: Iterable[str], *, exclude_internal: bool) -> dict[str, int]:
        """How many streams of each topic, of those that there are; named ones need not exist.

        TooManySteps if the pattern needs more steps than `allowed_steps`.
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
    """Topics by a regular expression, as Kafka's classic consumer takes it.

    Commas mean alternatives, blanks are left out, and it must match the whole of a name.
    """

    pattern: PatternKind

    def __init__(self, expression: str) -> None:
        self.expression = _cleaned(expression)
        try:
            matcher(self.expression)
        except PatternError as error:
            raise ConfigError(
                f"{type(self).__name__}({expression!r}) is no regular expression that a group in "
                f"ZooKeeper can share: {error}"
            ) from None
        if not self.expression:
            raise ConfigError(f"{type(self).__name__} needs a regular expression, e.g. 'orders.*'")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.expression!r})"

    def subscription(self, streams: int) -> StreamSubscription:
        """What to register for so many streams."""
        return StreamSubscription(MappingProxyType({self.expression: streams}), self.pattern)


class Whitelist(TopicFilter):
    """All topics that match."""

    pattern = PatternKind.WHITE_LIST


class Blacklist(TopicFilter):
    """All topics that do not match."""

    pattern = PatternKind.BLACK_LIST


def _cleaned(expression: str) -> str:
    """As Kafka's own filters do it, for members must agree on the text."""
    text = re.sub(r"\s", "", expression.strip().replace(",", "|"))
    return text.strip("\"'")
