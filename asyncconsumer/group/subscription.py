"""What a member of a group wants to read: named topics, or all whose names match."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from asyncconsumer.errors import ConfigError
from asyncconsumer.group.zookeeper.filters import INTERNAL_TOPICS

_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_FLAGS_AT_THE_START: Final = re.compile(r"\A(?:\s*\(\?[aimsux]+\))+")


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """Topics by name; they need not exist yet."""

    names: frozenset[str]

    def __init__(self, names: Iterable[str]) -> None:
        if isinstance(names, str):
            raise ConfigError(f"Topics({names!r}) takes several names: Topics([{names!r}])")
        object.__setattr__(self, "names", frozenset(names))

    def __str__(self) -> str:
        return ", ".join(sorted(self.names)) or "no topic"


@dataclass(frozen=True, slots=True)
class PatternSubscription:
    """All topics whose whole name matches, also those that are made later.

    Coordinators of KIP-848 do the matching themselves, by the `text`, which is in the syntax of
    RE2. It is that of the expression unless another is given, for what Python writes differently.
    """

    expression: re.Pattern[str]
    text: str

    def __init__(self, expression: str | re.Pattern[str], text: str | None = None) -> None:
        try:
            object.__setattr__(self, "expression", re.compile(expression))
        except (re.error, TypeError) as error:
            raise ConfigError(
                f"Pattern({expression!r}) is no regular expression: {error}"
            ) from None
        object.__setattr__(self, "text", with_flags(self.expression) if text is None else text)

    def __str__(self) -> str:
        return f"topics that match {self.expression.pattern!r}"

    def matching(self, existing: Iterable[str], *, exclude_internal: bool) -> frozenset[str]:
        """Of these names those that are meant."""
        return frozenset(
            name
            for name in existing
            if self.expression.fullmatch(name)
            and not (exclude_internal and name in INTERNAL_TOPICS)
        )


def with_flags(expression: re.Pattern[str]) -> str:
    """As text that means the same wherever it stands, also where it is a part of another one."""
    flags = "".join(letter for letter, flag in _FLAGS.items() if expression.flags & flag)
    text = _FLAGS_AT_THE_START.sub("", expression.pattern)  # those of ASCII: as names are
    if not flags:
        return text
    end = "\n" if "x" in flags else ""  # of what may be a comment
    return f"(?{flags}:{text}{end})"


Subscription: TypeAlias = TopicSubscription | PatternSubscription
