"""A middleware that stops calls after failures, until a probe succeeds."""

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

from asyncconsumer.aio.wait import wait_set
from asyncconsumer.config.validation import whole_number
from asyncconsumer.errors import ClosedError
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.middleware import CallNext
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)


class CircuitBreaker:
    """A circuit breaker, which opens after `failures` failed calls in a row.

    While it is open, calls wait, and their partitions are paused. A waiting call uses up no
    attempt. After `reset_ms` one call is made as a probe. If it succeeds, the breaker closes and
    the partitions are resumed. If it fails, the breaker stays open for another `reset_ms`.

    Only exceptions in `on` count as failures. Any other result of a probe closes the breaker.
    """

    def __init__(
        self,
        failures: int = 5,
        *,
        reset_ms: int = 30_000,
        on: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> None:
        whole_number("failures", failures, 1)
        whole_number("reset_ms", reset_ms, 1)
        self._limit = failures
        self._reset = reset_ms / 1000
        self._on = on
        self._failed = 0  # failed calls in a row
        self._open_until: float | None = None
        self._probing = False
        self._changed = asyncio.Event()
        self._paused: set[TopicPartition] = set()

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open, so that calls wait."""
        return self._open_until is not None

    async def __call__(self, call_next: CallNext, context: Context) -> Any:  # noqa: ANN401
        """Call the handler, or wait while the breaker is open."""
        probe = await self._admitted(context)
        try:
            result = await call_next(context)
        except self._on:
            self._note_failure(context, probe=probe)
            raise
        except asyncio.CancelledError:
            if probe:
                self._end_probe()  # another call is the next probe
            raise
        except Exception:
            self._note_success(context, probe=probe)
            raise
        self._note_success(context, probe=probe)
        return result

    async def _admitted(self, context: Context) -> bool:
        """Wait until a call may be made. Return whether the call is a probe."""
        clock = asyncio.get_running_loop().time
        while self._open_until is not None:
            wait = self._open_until - clock()
            if wait <= 0 and not self._probing:
                self._probing = True
                return True
            self._pause(context)
            self._changed.clear()
            if self._probing:
                await self._changed.wait()
            else:
                await wait_set(self._changed, wait)
        return False

    def _note_failure(self, context: Context, *, probe: bool) -> None:
        self._failed += 1
        if probe or (self._open_until is None and self._failed >= self._limit):
            if not probe:
                _log.warning(
                    "the circuit breaker of handler %s opens after %d failures",
                    context.handler,
                    self._failed,
                )
            loop = asyncio.get_running_loop()
            self._open_until = loop.time() + self._reset
            self._pause(context)
            # A paused partition has no calls, so a timer resumes the partition for the probe.
            loop.call_at(self._open_until, self._resume, context)
        if probe:
            self._end_probe()

    def _note_success(self, context: Context, *, probe: bool) -> None:
        if self._open_until is not None and not probe:
            return  # the call was made before the breaker opened
        self._failed = 0
        if probe:
            _log.info("the circuit breaker of handler %s closes", context.handler)
            self._open_until = None
            self._resume(context)
            self._end_probe()

    def _end_probe(self) -> None:
        self._probing = False
        self._changed.set()

    def _resume(self, context: Context) -> None:
        with suppress(ClosedError):  # the timer may end after the app
            context.app.consumer.resume(*self._paused)
        self._paused.clear()

    def _pause(self, context: Context) -> None:
        """Pause the partition of a call's record, unless it is paused already."""
        consumer, record = context.app.consumer, context.record
        tp = TopicPartition(record.topic, record.partition)
        if tp in consumer.assignment and tp not in consumer.paused:
            consumer.pause(tp)
            self._paused.add(tp)
