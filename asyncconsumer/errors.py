"""Every error of this package, by whose turn it is to act."""

from typing import ClassVar


class ConsumerError(Exception):
    """Root. ``retriable`` is the only thing retry loops may look at."""

    retriable: ClassVar[bool] = False


class ConfigError(ConsumerError, ValueError):
    """You must act: an option, or a pair of options, makes no sense."""


class ClosedError(ConsumerError):
    """You must act: *your* code already closed this object."""
