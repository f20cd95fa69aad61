"""Parsers for option values that are strings, such as those of Java properties."""

import re
from typing import Final

from asyncconsumer.errors import ConfigError

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")  # int() also accepts underscores and other digits


def parse_int(name: str, text: str, least: int | None = None) -> int:
    """Return the number in `text`. Raise ConfigError if it is invalid or less than `least`."""
    number = int(text) if _WHOLE.fullmatch(text.strip()) else None
    if number is None or (least is not None and number < least):
        limit = "" if least is None else f" from {least}"
        raise ConfigError(f"`{name}` must be a whole number{limit}, got {text!r}")
    return number


def parse_bool(name: str, text: str) -> bool:
    """Return True for "true" and False for "false", ignoring case. Raise ConfigError otherwise."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"`{name}` must be true or false, got {text!r}")
    return word == "true"
