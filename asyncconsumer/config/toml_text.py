"""A parser of TOML text that also returns the line of each setting."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Final

from asyncconsumer.errors import ConfigError

TABLE: Final = "asyncconsumer"
"""The table with the settings. Without it, the whole document has the settings."""
_CLOSING: Final = ('"""', "'''", "]", "}")  # one of them ends a value with several lines


def parse_toml(label: str, text: str) -> dict[str, tuple[object, int]]:
    """Return the value and the line of each setting. Names in nested tables are joined with dots.

    Error messages begin with `label`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{label}: the file is not valid TOML: {error}") from None
    table = document.get(TABLE)
    values = table if isinstance(table, dict) else document
    prefix = f"{TABLE}." if isinstance(table, dict) else ""
    lines = dict(_lines(text))
    return {name: (value, lines.get(prefix + name, 1)) for name, value in _flat(values)}


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield the full name and the first line of each setting in a valid document.

    Each statement of a document is parsed as a document by itself.
    """
    table, statement, first = "", "", 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not statement:
            first = number
        elif not any(mark in line for mark in _CLOSING):
            statement += "\n" + line
            continue
        statement = f"{statement}\n{line}" if statement else line
        try:
            document = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # the value continues on the next line
        if statement.lstrip().startswith("["):
            table = _header(document)
        else:
            for name, _ in _flat(document):
                yield table + name, first
        statement = ""


def _header(document: Mapping[str, object]) -> str:
    """Return the prefix of all names below a table header, with dots."""
    prefix, node = "", document
    while node:
        name, value = next(iter(node.items()))
        prefix += f"{name}."
        node = value if isinstance(value, dict) else {}
    return prefix


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
