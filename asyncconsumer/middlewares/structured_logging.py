"""A middleware that logs each call with fields for a JSON formatter."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.middleware import CallNext
from asyncconsumer.handlers.outgoing import OutgoingRecord, PublishNext
from asyncconsumer.records.decoding import Record

_log: Final = logging.getLogger(__name__)


class StructuredLogging:
    """A middleware that logs a line for each call, with fields for a JSON formatter.

    The fields are attributes of the log record: handler, topic, partition, offset, records,
    attempt, seconds, outcome and error. `error` is the type of an exception. Keys, values and
    headers are not logged. `fields` is a function that returns more fields for a record. These may
    reveal the record's data.

    For a record that the handler publishes, a line is logged when the producer has accepted it. Its
    fields are handler, topic, bytes, attempt, outcome and error.
    """

    def __init__(
        self,
        logger: logging.Logger = _log,
        *,
        level: int = logging.INFO,
        fields: Callable[[Record], Mapping[str, object]] | None = None,
    ) -> None:
        self._logger = logger
        self._level = level
        self._fields = fields

    async def __call__(self, call_next: CallNext, context: Context) -> Any:  # noqa: ANN401
        """Log the call when it has ended. A failure is logged as a warning."""
        clock = asyncio.get_running_loop().time
        start = clock()
        try:
            result = await call_next(context)
        except BaseException as error:
            cancelled = isinstance(error, asyncio.CancelledError)
            outcome = "cancelled" if cancelled else "failed"
            self._write(logging.WARNING, context, clock() - start, outcome, type(error).__name__)
            raise
        self._write(self._level, context, clock() - start, "processed", None)
        return result

    async def publish(self, call_next: PublishNext, record: OutgoingRecord) -> Any:  # noqa: ANN401
        """Publish a record, and log the outcome."""
        try:
            delivery = await call_next(record)
        except Exception as error:
            self._write_outgoing(logging.WARNING, record, "not sent", type(error).__name__)
            raise
        self._write_outgoing(self._level, record, "sent", None)
        return delivery

    def _write_outgoing(
        self, level: int, record: OutgoingRecord, outcome: str, error: str | None
    ) -> None:
        handler = record.context.handler
        fields: dict[str, object] = {
            "handler": handler,
            "topic": record.topic,
            "bytes": len(record.value or b""),
            "attempt": record.context.attempt,
            "outcome": outcome,
            "error": error,
        }
        self._logger.log(
            level, "handler %s: result %s to %s", handler, outcome, record.topic, extra=fields
        )

    def _write(
        self, level: int, context: Context, seconds: float, outcome: str, error: str | None
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        record = context.record
        fields: dict[str, object] = {
            **(self._fields(record) if self._fields else {}),
            "handler": context.handler,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "records": len(context.records),
            "attempt": context.attempt,
            "seconds": round(seconds, 6),
            "outcome": outcome,
            "error": error,
        }
        self._logger.log(
            level,
            "handler %s %s %s[%d]@%d",
            context.handler,
            outcome,
            record.topic,
            record.partition,
            record.offset,
            extra=fields,
        )
