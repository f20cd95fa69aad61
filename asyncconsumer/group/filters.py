"""Which topics a subscription means: named ones, or all that a pattern takes or leaves out."""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from asyncconsumer.errors import ConfigError

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)


class Pattern(enum.Enum):
    """How the keys of a subscription are meant; values are the words in ZooKeeper."""

    STATIC = "static"
    WHITE_LIST = "white_list"
    BLACK_LIST = "black_list"


@dataclass(frozen=True)
class Subscription:
    """How many streams of which topics; for a pattern there is one key, the pattern.

    It is the text as it stands in ZooKeeper, so that all members read the same.
    """

    streams: Mapping[str, int]
    pattern: Pattern = Pattern.STATIC

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(next(iter(self.streams), ""))

    @property
    def wildcard(self) -> bool:
        """Whether it means topics that are not named in it."""
        return self.pattern is not Pattern.STATIC

    def takes(self, topic: str, *, exclude_internal: bool) -> bool:
        """Whether it means a topic."""
        if not self.wildcard:
            return topic in self.streams
        if exclude_internal and topic in INTERNAL_TOPICS:
            return False
        matches = self._expression.fullmatch(topic) is not None
        return matches == (self.pattern is Pattern.WHITE_LIST)

    def topics(self, existing: Iterable[str], *, exclude_internal: bool) -> dict[str, int]:
        """How many streams of each topic, of those that there are; named ones need not exist."""
        if not self.wildcard:
            return dict(self.streams)
        count = next(iter(self.streams.values()), 0)
        return {
            topic: count
            for topic in existing
            if self.takes(topic, exclude_internal=exclude_internal)
        }


class TopicFilter:
    """Topics by a regular expression, as Kafka's classic consumer takes it.

    Commas mean alternatives, blanks are left out, and it must match the whole of a name.
    """

    pattern: Pattern

    def __init__(self, expression: str) -> None:
        self.expression = _cleaned(expression)
        try:
            re.compile(self.expression)
        except re.error as error:
            raise ConfigError(
                f"{type(self).__name__}({expression!r}) is no regular expression: {error}"
            ) from None
        if not self.expression:
            raise ConfigError(f"{type(self).__name__} needs a regular expression, e.g. 'orders.*'")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.expression!r})"

    def subscription(self, streams: int) -> Subscription:
        """What to register for so many streams."""
        return Subscription(MappingProxyType({self.expression: streams}), self.pattern)


class Whitelist(TopicFilter):
    """All topics that match."""

    pattern = Pattern.WHITE_LIST


class Blacklist(TopicFilter):
    """All topics that do not match."""

    pattern = Pattern.BLACK_LIST


def _cleaned(expression: str) -> str:
    """As Kafka's own filters do it, for members must agree on the text."""
    text = re.sub(r"\s", "", expression.strip().replace(",", "|"))
    return text.strip("\"'")
