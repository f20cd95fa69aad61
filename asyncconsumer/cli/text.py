"""Functions that print to the terminal and to other programs."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNLIMITED_WIDTH: Final = 10_000


def console() -> Console:
    """Return a console that prints to standard output, and wraps lines only in a terminal."""
    width = None if sys.stdout.isatty() else _UNLIMITED_WIDTH
    return Console(highlight=False, width=width)


def print_message(message: str, style: str = "") -> None:
    """Print a message as one line to standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        Text(printable(message)), style=style
    )


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print a value as one line of JSON to standard output."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()  # another program may read the lines while the command runs


def print_outcome(message: str, style: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what a command did: a message to standard error, or `fields` as JSON."""
    if as_json:
        print_json(fields)
    else:
        print_message(message, style)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table with these columns. Long cells are folded, never cut.

    The columns in `right` are aligned to the right.
    """
    result = Table()
    for name in columns:
        result.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return result


def cell(value: object, style: str = "") -> Text:
    """Return a table cell without control characters. None becomes a dash."""
    return Text("-" if value is None else printable(str(value)), style=style)


def first_of(names: Iterable[str], limit: int) -> str:
    """Return a text with the first `limit` names, and with the number of names after them."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def counted(number: int, noun: str) -> str:
    """Return the number with the noun, in the plural unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable(text: str) -> str:
    """Replace characters that are not printable, because they could control the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
