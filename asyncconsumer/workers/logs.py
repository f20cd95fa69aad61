"""The log formats of workers and their supervisor: lines of text or of JSON."""

import enum
import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

# The fields of log records about handlers. None of them has the key, value or headers of a record.
FIELDS: Final = (
    "handler",
    "topic",
    "partition",
    "offset",
    "records",
    "attempt",
    "attempts",
    "seconds",
    "outcome",
    "error",
)


class LogFormat(enum.StrEnum):
    """A log format of `asyncconsumer run`."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """A formatter that makes one line of JSON of a log record.

    Attributes of the log record that are not in `FIELDS` are left out, because they may contain
    values of Kafka records.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a line of JSON. A traceback is one field."""
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            line["worker"] = self._worker
        line.update({name: vars(record)[name] for name in FIELDS if name in vars(record)})
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)


def make_formatter(log_format: LogFormat, worker: int | None = None) -> logging.Formatter:
    """Return the formatter of a worker, or of the supervisor if there is no number."""
    if log_format is LogFormat.JSON:
        return JsonFormatter(worker)
    if worker is None:
        return logging.Formatter("%(asctime)s supervisor %(levelname)s: %(message)s")
    return logging.Formatter(f"%(asctime)s worker {worker} %(levelname)s %(name)s: %(message)s")


def configure(formatter: logging.Formatter, level: int) -> None:
    """Log to standard error, unless the program has configured its root logger already."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])
