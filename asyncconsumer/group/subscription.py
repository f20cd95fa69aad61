"""What a member of a group wants to read: named topics, or all whose names match."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from asyncconsumer.errors import ConfigError
from asyncconsumer.group.filters import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics by name; they need not exist yet."""

    names: frozenset[str]

    def __init__(self, names: Iterable[str]) -> None:
        if isinstance(names, str):
            raise ConfigError(f"Topics({names!r}) takes several names: Topics([{names!r}])")
        object.__setattr__(self, "names", frozenset(names))

    def __str__(self) -> str:
        return ", ".join(sorted(self.names)) or "no topic"


@dataclass(frozen=True, slots=True)
class Pattern:
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
        object.__setattr__(self, "text", self.expression.pattern if text is None else text)

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


Subscription: TypeAlias = Topics | Pattern
