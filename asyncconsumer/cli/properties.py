"""Options of the classic consumer by their own names: from a file, and from the command line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from asyncconsumer.config import ClassicConfig
from asyncconsumer.errors import ConfigError

_MOST: Final = 2**20
_NAME: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|secret|jaas|token|credential|private\.?key"
    r"|(^|\.)(auth|sasl|key|pem|pin)$"
)

_NO_TEXT: Final = ("ssl.context", "zookeeper.ssl.context", "sasl.oauth.token.provider")
_OPTIONS: Final = {"zookeeper.connect": "--zookeeper HOST:PORT", "group.id": "--group GROUP"}


def gathered(
    file: Path | None, given: Iterable[str], options: Mapping[str, str | None]
) -> dict[str, str]:
    """All properties: what the command line says counts more than the file."""
    found = {} if file is None else read_file(file)
    found |= from_options(given)
    found |= {name: value for name, value in options.items() if value is not None}
    for name in found:
        _refuse_objects(name)
    return found


def config_of(properties: Mapping[str, str]) -> ClassicConfig:
    """The same as a config; what is missing is asked for by the name of its option."""
    for name, option in _OPTIONS.items():
        if properties.get(name, "").strip():
            continue
        if name == "zookeeper.connect" and properties.get("bootstrap.servers"):
            raise ConfigError(
                "zookeeper.connect is missing: this command works with groups in ZooKeeper only, "
                "so give --zookeeper HOST:PORT. For groups that Kafka's brokers coordinate, use "
                "Consumer in Python, and Kafka's kafka-consumer-groups.sh to see or reset offsets"
            )
        raise ConfigError(f"{name} is missing: give {option}, or a file that has it")
    return ClassicConfig.from_properties(properties)


def storage_properties(storage: str | None) -> dict[str, str]:
    """What `--offsets-storage` stands for: the classic consumer has two properties for it."""
    if storage is None:
        return {}
    found = {"offsets.storage": "zookeeper" if storage == "zookeeper" else "kafka"}
    if storage != "zookeeper":
        found["dual.commit.enabled"] = str(storage == "dual").lower()
    return found


def storage_of(config: ClassicConfig) -> str:
    """In one word: zookeeper, kafka, or dual, which is both."""
    if config.offsets_storage == "kafka" and config.dual_commit_enabled:
        return "dual"
    return config.offsets_storage


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
            shown = name.split()[0] if name else ""  # what follows may be a secret
            raise ConfigError(f"--property {shown!r}: give a name and a value, name=value")
        _refuse_objects(name)
        if is_secret(name):  # the message does not repeat the value
            raise ConfigError(
                f"--property {name}: it is a secret, and other users can see a command line. "
                "Write it to a file that only you can read, and give --properties FILE. "
                "A script can pipe it from its environment to --properties /dev/stdin"
            )
        found[name] = value.strip()
    return found


def is_secret(name: str) -> bool:
    """Whether a property of this name, known to us or not, has a value that nobody may see."""
    return _SECRET.search(re.sub("[_-]", ".", name.lower())) is not None


def _refuse_objects(name: str) -> None:
    if name in _NO_TEXT:
        raise ConfigError(f"{name} is no text, so the command line cannot take it")


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
