"""Output for users and for other programs."""

import json
import sys
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_AS_WIDE_AS_IT_IS: Final = 10_000


def console() -> Console:
    """Return a console for standard output. Lines are not cut unless it is a terminal."""
    width = None if sys.stdout.isatty() else _AS_WIDE_AS_IT_IS
    return Console(highlight=False, width=width)


def say(sentence: str, style: str = "") -> None:
    """Print a message as one line of standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        Text(printable(sentence)), style=style
    )


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever JSON takes
    """Print a value as one line of JSON, for other programs."""
    sys.stdout.write(json.dumps(value) + "\n")


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return a table that is never cut, however narrow the terminal is."""
    made = Table()
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


def cell(value: object, style: str = "") -> Text:
    """Return a cell without control characters, which could affect the terminal. None is a dash."""
    return Text("-" if value is None else printable(str(value)), style=style)


def printable(text: str) -> str:
    """Replace the characters of a text that are not printable."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
