"""A parser for Java properties files."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """The value of a property, and the number of the line on which it begins."""

    value: str
    line: int

    def __repr__(self) -> str:
        return f"Property(line={self.line})"  # the value may be a secret


def parse_properties(text: str) -> dict[str, Property]:
    """Parse the text of a Java properties file.

    If a name occurs several times, its last value is used.
    """
    properties = {}
    for number, line in _logical_lines(text):
        match = _NAME.match(line)
        assert match is not None  # the pattern also matches the empty string
        properties[_unescape(match[1])] = Property(_unescape(line[match.end() :]), number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line with its number.

    Skip comments and blank lines, and join continued lines.
    """
    continued, first = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(" \t\f")
        if not continued:
            first = number
            if not line or line[0] in "#!":
                continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            continued += line[:-1]
            continue
        yield first, continued + line
        continued = ""
    if continued:
        yield first, continued


def _unescape(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, escape)

    return _ESCAPE.sub(replacement, text)
