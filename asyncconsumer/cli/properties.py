"""Options of the classic consumer by their own names: from a file, and from the command line."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from asyncconsumer.errors import ConfigError

_MOST: Final = 2**20
_NAME: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SECRET: Final = re.compile(r"password|secret|jaas|token|auth\b", re.IGNORECASE)


def read_file(path: Path) -> dict[str, str]:
    """A Java properties file: `name=value`, comments, lines that go on after a backslash."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"--properties {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--properties {path}: it is not UTF-8 text") from None
    if len(data) > _MOST:
        raise ConfigError(f"--properties {path}: it has more than {_MOST} bytes")
    return parse(text)


def parse(text: str) -> dict[str, str]:
    """The properties in a text; the last one of a name counts."""
    found = {}
    for line in _logical_lines(text):
        match = _NAME.match(line)
        assert match is not None  # it matches nothing, too
        found[_unescaped(match[1])] = _unescaped(line[match.end() :])
    return found


def from_options(given: Iterable[str]) -> dict[str, str]:
    """Those of the command line, each `name=value`. Everybody on a machine can read it there."""
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"--property {name!r}: give a name and a value, name=value")
        if _SECRET.search(name):  # the value is not told
            raise ConfigError(
                f"--property {name}: others can see what is on a command line; write it into a "
                "file that only you can read, and give that as --properties FILE"
            )
        found[name] = value.strip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; those that go on are joined."""
    begun = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def meant(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, escape)

    return _ESCAPE.sub(meant, text)
