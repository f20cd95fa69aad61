"""The options of the classic consumer by their Java names, from a file and the command line."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from asyncconsumer.config import ClassicConfig, ConnectionConfig
from asyncconsumer.config.conversion import OBJECTS
from asyncconsumer.config.external import ExternalOptions, read_text
from asyncconsumer.config.properties import parse_properties
from asyncconsumer.config.redaction import is_secret
from asyncconsumer.errors import ConfigError

_OBJECTS: Final = tuple(name.replace("_", ".") for name in OBJECTS)
_IN_ENVIRONMENT: Final = frozenset(
    field.name
    for field in fields(ClassicConfig)
    if field.name.startswith("zookeeper_")
    or field.name in {"group_id", *(other.name for other in fields(ConnectionConfig))}
)
"""Options that environment variables set for groups in ZooKeeper."""
_REQUIRED: Final = {"zookeeper.connect": "--zookeeper HOST:PORT", "group.id": "--group GROUP"}


def merge_properties(
    file: Path | None, assignments: Iterable[str], options: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the properties of all sources.

    The first source that sets a property applies: `options`, `assignments` (`name=value` texts),
    `file`.
    """
    properties = {} if file is None else read_file(file)
    properties |= parse_assignments(assignments)
    properties |= {name: value for name, value in options.items() if value is not None}
    for name in properties:
        _refuse_object(name)
    return properties


def _from_environment() -> dict[str, Any]:
    """Return the options of ZooKeeper groups that environment variables set, by Java names."""
    options = ExternalOptions.read({}, own=_IN_ENVIRONMENT).options
    return {name.replace("_", "."): value for name, value in options.items()}


def in_zookeeper(
    zookeeper: str | None, file: Path | None, assignments: Iterable[str] | None
) -> bool:
    """Return whether the option --zookeeper, a property or the environment sets ZooKeeper."""
    if zookeeper is not None:
        return True
    properties = _from_environment() | merge_properties(file, assignments or (), {})
    return bool(properties.get("zookeeper.connect"))


def make_config(properties: Mapping[str, str]) -> ClassicConfig:
    """Return the config for classic properties.

    Environment variables set properties that are missing. Raise ConfigError if a required property
    is set in neither.
    """
    merged = _from_environment() | dict(properties)
    for name, option in _REQUIRED.items():
        if not merged.get(name, "").strip():
            raise ConfigError(
                f"`{name}` is missing. Set {option}, or set it in a --properties file."
            )
    return ClassicConfig.from_properties(merged)


def storage_properties(storage: str | None) -> dict[str, str]:
    """Return the two classic properties for a value of the option `--offsets-storage`."""
    if storage is None:
        return {}
    properties = {"offsets.storage": "zookeeper" if storage == "zookeeper" else "kafka"}
    if storage != "zookeeper":
        properties["dual.commit.enabled"] = str(storage == "dual").lower()
    return properties


def offset_storage(config: ClassicConfig) -> str:
    """Return the offset store in a config: zookeeper, kafka, or dual for both."""
    if config.offsets_storage == "kafka" and config.dual_commit_enabled:
        return "dual"
    return config.offsets_storage


def read_file(path: Path) -> dict[str, str]:
    """Return the properties in a Java properties file."""
    text = read_text(path, f"--properties {path}")
    return {name: value for name, (value, _) in parse_properties(text).items()}


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Parse the `name=value` arguments of `--property`.

    Raise ConfigError for secrets, because all users of a machine can see command lines.
    """
    properties = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        name = name.strip()
        if not equals or not name:
            shown = name.split()[0] if name else ""  # the rest may be a secret
            raise ConfigError(f"--property {shown!r} must have the form NAME=VALUE.")
        _refuse_object(name)
        # the message does not repeat the value
        if is_secret(name) or value.lstrip().startswith("-----BEGIN "):
            raise ConfigError(
                f"--property {name} is a secret, and other users can see a command line. "
                "Write it to a file that only you can read, and set --properties FILE. "
                "A script can pipe it from its environment to --properties /dev/stdin."
            )
        properties[name] = value.strip()
    return properties


def _refuse_object(name: str) -> None:
    if name in _OBJECTS:
        raise ConfigError(
            f"`{name}` is a Python object and cannot be set on the command line or in a file."
        )
