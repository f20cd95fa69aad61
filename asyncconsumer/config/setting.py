"""A value from outside the program, and the place that sets it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from asyncconsumer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of an option in a file or in an environment variable."""

    name: str
    value: object = field(repr=False)  # it may be a secret
    origin: str
    """The file and line, or the environment variable."""

    def renamed(self, name: str, value: object = None) -> Self:
        """Return this setting for another option, and with another value unless it is None."""
        return replace(self, name=name, value=self.value if value is None else value)

    def text(self) -> str:
        """Return the value, which must be text. The error does not contain it."""
        if not isinstance(self.value, str):
            raise ConfigError(f"{self.origin}: `{self.name}` must be text. Put it in quotes")
        return self.value

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Put the place of this setting before the text of a ConfigError."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError(f"{self.origin}: {error}") from None
