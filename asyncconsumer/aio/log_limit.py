"""A rate-limited logger."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Final

_LINES: Final = 10
_SECONDS: Final = 60.0


class RateLimitedLogger:
    """A logger of at most ten messages per minute. The next one says how many were left out."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._written: deque[float] = deque(maxlen=_LINES)  # times of the last ten lines
        self._suppressed = 0

    def warning(
        self,
        message: str,
        *args: object,
        error: BaseException | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Log a warning, or only count it if the limit is reached.

        If `error` is given, its traceback is added. `fields` become attributes of the log record,
        for structured logs.
        """
        self._log(logging.WARNING, message, args, error, fields)

    def info(self, message: str, *args: object) -> None:
        """Log an info message, or only count it if the limit is reached."""
        self._log(logging.INFO, message, args, None)

    def _log(
        self,
        level: int,
        message: str,
        args: tuple[object, ...],
        error: BaseException | None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        now = asyncio.get_running_loop().time()
        if len(self._written) == _LINES and now - self._written[0] < _SECONDS:
            self._suppressed += 1
            return
        if self._suppressed:
            message, args = f"{message} (%d lines like this left out)", (*args, self._suppressed)
        self._written.append(now)
        self._suppressed = 0
        self._logger.log(level, message, *args, exc_info=error, extra=fields)
