"""Options from keywords, environment variables and a file, in this order of precedence."""

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from asyncconsumer.config.conversion import convert
from asyncconsumer.config.java_keys import translate
from asyncconsumer.config.option_docs import option_docs
from asyncconsumer.config.options import ConsumerOptions
from asyncconsumer.config.properties import parse_properties
from asyncconsumer.config.setting import Setting
from asyncconsumer.config.toml_text import parse_toml
from asyncconsumer.errors import ConfigError

PREFIX: Final = "ASYNCCONSUMER_"
"""The beginning of the names of environment variables that set options."""
FILE_VARIABLE: Final = f"{PREFIX}CONFIG"
"""The environment variable with the path of a file."""
OTHER_VARIABLES: Final = frozenset(
    PREFIX + name
    for name in (
        "CACHE",
        "CONFIG",
        "DASHBOARD_TOKEN",
        "DECODER",
        "MAVEN_ALLOW_HTTP",
        "MAVEN_REPOSITORY",
        "REGISTRY",
        "SCHEDULES",
        "SEED",
    )
)
"""Environment variables with the prefix that are not options."""
_MAX_FILE_BYTES: Final = 2**20

StrPath: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class ExternalOptions:
    """The options of a consumer or a producer, and the place that sets each."""

    keywords: Mapping[str, Any] = field(repr=False)
    settings: Mapping[str, Setting]
    """The converted values of the environment and the file, by option."""

    @classmethod
    def read(
        cls,
        keywords: Mapping[str, Any],
        path: StrPath | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        own: Container[str] | None = None,
    ) -> Self:
        """Read the environment and a file: `path`, or the path in ``ASYNCCONSUMER_CONFIG``.

        `own` names the options to return, by default those of a consumer. Settings of other options
        are left out, because consumers and producers of a program share their environment and file.
        """
        names = option_docs(ConsumerOptions) if own is None else own
        variables = os.environ if environment is None else environment
        settings: dict[str, Setting] = {}
        if path is not None:
            settings |= convert_settings(read_file(path))
        elif variables.get(FILE_VARIABLE):
            settings |= convert_settings(read_file(variables[FILE_VARIABLE], f"{FILE_VARIABLE}="))
        settings |= convert_settings(_read_environment(variables))
        return cls(keywords, {name: value for name, value in settings.items() if name in names})

    @property
    def options(self) -> dict[str, Any]:
        """The values of all options that are set.

        Keywords override variables, which override the file.
        """
        return {name: setting.value for name, setting in self.settings.items()} | {**self.keywords}

    def origin(self, name: str) -> str:
        """Return the source that sets an option: "keyword", a variable, file:line, or "default"."""
        if name in self.keywords:
            return "keyword"
        return self.settings[name].origin if name in self.settings else "default"

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Return a context manager that adds the source of each option to a ConfigError."""
        try:
            yield
        except ConfigError as error:
            words = dict.fromkeys(re.findall(r"[a-z][a-z0-9_]+", str(error)))
            external = [
                name for name in words if name in self.settings and name not in self.keywords
            ]
            if not external:
                raise
            places = ", ".join(f"`{name}` from {self.origin(name)}" for name in external)
            raise ConfigError(f"{str(error).removesuffix('.')} ({places})") from None


def read_text(path: StrPath, label: str) -> str:
    """Return the text of a file. Error messages begin with `label`."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{label}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{label}: the file is not UTF-8 text") from None
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{label}: the file is larger than {_MAX_FILE_BYTES} bytes")
    return text


def read_file(path: StrPath, prefix: str = "") -> list[Setting]:
    """Return the settings in a TOML file or a properties file.

    Error messages begin with `prefix` and the path.
    """
    label = prefix + str(path)
    values: Mapping[str, tuple[object, int]]
    match Path(path).suffix.lower():
        case ".toml":
            values = parse_toml(label, read_text(path, label))
        case ".properties":
            values = parse_properties(read_text(path, label))
        case _:
            raise ConfigError(
                f"{label}: the name of the file must end with .toml or .properties, which is its "
                "format"
            )
    return [Setting(name, value, f"{path}:{line}") for name, (value, line) in values.items()]


def _read_environment(variables: Mapping[str, str]) -> list[Setting]:
    return [
        Setting(variable.removeprefix(PREFIX).lower(), value, variable)
        for variable, value in sorted(variables.items())
        if variable.startswith(PREFIX) and variable not in OTHER_VARIABLES
    ]


def convert_settings(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Return the settings of one file or of the environment by option name.

    Their values are converted to the types of the options. Raise ConfigError if an option is set
    twice.
    """
    plain: dict[str, Setting] = {}
    for setting in settings:
        _add(plain, setting.name.replace(".", "_"), setting)
    result: dict[str, Setting] = {}
    for setting in translate(plain):
        if (converted := convert(setting)) is not None:
            _add(result, converted.name, converted)
    return result


def _add(settings: dict[str, Setting], name: str, setting: Setting) -> None:
    if name in settings:
        raise ConfigError(
            f"{setting.origin}: `{name}` is already set by {settings[name].origin}. Remove one of "
            "them"
        )
    settings[name] = setting
