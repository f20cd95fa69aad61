"""A value of an option that was set outside of the program, and the place where it is set."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from asyncconsumer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of an option, and the file or environment variable that sets it."""

    name: str
    value: object = field(repr=False)  # it may be a secret
    origin: str
    """The file and line, or the environment variable."""

    def renamed(self, name: str, value: object = None) -> Self:
        """Return a copy with another name and, unless `value` is None, with another value."""
        return replace(self, name=name, value=self.value if value is None else value)

    def text(self) -> str:
        """Return the value.

        Raise ConfigError if the value is not text. The error does not contain the value.
        """
        if not isinstance(self.value, str):
            raise ConfigError(f"{self.origin}: `{self.name}` must be text. Put it in quotes")
        return self.value

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Return a context manager that adds this setting's origin to the text of a ConfigError."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError(f"{self.origin}: {error}") from None
