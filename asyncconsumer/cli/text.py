"""Text for people, and for other programs."""

import json
import sys
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_AS_WIDE_AS_IT_IS: Final = 10_000


def console() -> Console:
    """Standard output. Where it is no terminal no line is cut."""
    width = None if sys.stdout.isatty() else _AS_WIDE_AS_IT_IS
    return Console(highlight=False, width=width)


def say(sentence: str, style: str = "") -> None:
    """Something besides the output, on one line of standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        Text(printable(sentence)), style=style
    )


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever JSON takes
    """For other programs: one object, one line."""
    sys.stdout.write(json.dumps(value) + "\n")


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table of which nothing is left out, however narrow the terminal."""
    made = Table()
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


def cell(value: object, style: str = "") -> Text:
    """What others have written must not steer a terminal; nothing is a dash."""
    return Text("-" if value is None else printable(str(value)), style=style)


def printable(text: str) -> str:
    """The same without control characters."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
