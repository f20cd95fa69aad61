"""The log of commands on standard error: warnings of this package, and supervisor messages.

A warning about the same subject is written at most once a minute.
"""

import logging
import time
from typing import Final

import typer

from asyncconsumer.cli.text import printable

_SECONDS: Final = 60.0


class RepeatFilter(logging.Filter):
    """A filter that drops a message if one about the same subject was written in the last minute.

    The subject is the first argument of the message. Other arguments, such as the time until the
    next attempt, may differ.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the log record is to be written."""
        subject = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        key = (str(record.msg), subject)
        now = time.monotonic()
        if now - self._written.get(key, -_SECONDS) < _SECONDS:
            return False
        self._written[key] = now
        return True


def write_warnings() -> None:
    """Write warnings of this package to standard error."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(RepeatFilter())
    logging.getLogger("asyncconsumer").addHandler(handler)


class MessageWriter:
    """A function that writes messages of a supervisor to standard error as log lines."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self._formatter = formatter

    def __call__(self, message: str, level: int = logging.INFO) -> None:
        """Write `message` as a log line with this level."""
        name = "asyncconsumer.workers"
        record = logging.LogRecord(name, level, "", 0, printable(message), None, None)
        typer.echo(self._formatter.format(record), err=True)
