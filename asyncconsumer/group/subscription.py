"""Subscriptions of a group member: named topics, or all topics whose names match a pattern."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from asyncconsumer.errors import ConfigError

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_FLAGS_AT_THE_START: Final = re.compile(r"\A(?:\s*\(\?[aimsux]+\))+")


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """A subscription to topics by name. The topics need not exist yet."""

    names: frozenset[str]

    def __init__(self, names: Iterable[str]) -> None:
        if isinstance(names, str):
            raise ConfigError(f"Topics({names!r}) needs a list of names: Topics([{names!r}])")
        object.__setattr__(self, "names", frozenset(names))

    def __str__(self) -> str:
        return ", ".join(sorted(self.names)) or "no topic"


@dataclass(frozen=True, slots=True)
class PatternSubscription:
    """A subscription to all topics whose whole name matches a pattern, including later topics.

    KIP-848 coordinators match topic names themselves, by `text`, which is in RE2 syntax. `text`
    defaults to the Python expression. Pass it if RE2 needs a different notation.
    """

    expression: re.Pattern[str]
    text: str

    def __init__(self, expression: str | re.Pattern[str], text: str | None = None) -> None:
        try:
            object.__setattr__(self, "expression", re.compile(expression))
        except (re.error, TypeError) as error:
            raise ConfigError(
                f"Pattern({expression!r}) is not a regular expression: {error}"
            ) from None
        object.__setattr__(self, "text", with_flags(self.expression) if text is None else text)

    def __str__(self) -> str:
        return f"topics that match {self.expression.pattern!r}"

    @property
    def matches_internal(self) -> bool:
        """Whether an internal topic of Kafka matches the pattern."""
        return bool(self.matching(INTERNAL_TOPICS, exclude_internal=False))

    def matching(self, existing: Iterable[str], *, exclude_internal: bool) -> frozenset[str]:
        """Return those of the `existing` names that match."""
        return frozenset(
            name
            for name in existing
            if self.expression.fullmatch(name)
            and not (exclude_internal and name in INTERNAL_TOPICS)
        )


def with_flags(expression: re.Pattern[str]) -> str:
    """Return the text of `expression` with its flags written inline, such as "(?i:...)".

    The text can therefore be a part of another expression, and keeps its meaning there.
    """
    flags = "".join(name for name, flag in _FLAGS.items() if expression.flags & flag)
    text = _FLAGS_AT_THE_START.sub("", expression.pattern)  # (?a) and (?u) can go: names are ASCII
    if not flags:
        return text
    # the line end closes a trailing comment of a verbose expression
    end = "\n" if "x" in flags else ""
    return f"(?{flags}:{text}{end})"


Subscription: TypeAlias = TopicSubscription | PatternSubscription
