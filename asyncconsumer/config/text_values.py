"""Options that are given as texts, as the properties of Java's clients are."""

import re
from typing import Final

from asyncconsumer.errors import ConfigError

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")  # int() also takes underscores, other alphabets


def parse_int(name: str, text: str, least: int | None = None) -> int:
    """The number that the text is."""
    number = int(text) if _WHOLE.fullmatch(text.strip()) else None
    if number is None or (least is not None and number < least):
        above = "" if least is None else f" from {least}"
        raise ConfigError(f"{name} must be a whole number{above}, got {text!r}")
    return number


def parse_bool(name: str, text: str) -> bool:
    """Whether the text is true, in any case."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, got {text!r}")
    return word == "true"
