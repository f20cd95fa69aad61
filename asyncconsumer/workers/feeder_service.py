"""A feeder as the app of a worker process."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, Self, runtime_checkable

from asyncconsumer.aio.scope import Scope
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.draining import Drained
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.web.status import Status

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_LINES: Final = 10.0


@runtime_checkable
class Feeder(AbstractAsyncContextManager[object], Protocol):
    """The methods of a `SparkFeeder` that a worker calls.

    Because of this protocol, only workers that run a feeder import Spark.
    """

    @property
    def consumer(self) -> Consumer[Any, Any]:
        """The consumer that reads for the feeder."""

    @property
    def grace_ms(self) -> int:
        """The time in ms that writes in flight have when the feeder is closed."""

    @property
    def recorder(self) -> Recorder:
        """The recorder of counters and histograms."""

    async def run(self) -> None:
        """Wait until the feeder fails, and raise its error."""

    def stats(self) -> Any:  # noqa: ANN401 - of a package that this one does not import
        """Return the counters of the records that were read and written so far."""

    def status_by_worker(self) -> Mapping[str, Status]:
        """Return the status of the feeder under the key ``""``."""


class FeederService:
    """A feeder with the methods of a `ConsumerApp` that a worker calls.

    The progress is logged every 10 s while records are written.
    """

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self.paused_topics: Final[frozenset[str]] = frozenset()

    @property
    def consumer(self) -> Consumer[Any, Any]:
        """The consumer that reads for the feeder."""
        return self._feeder.consumer

    @property
    def recorder(self) -> Recorder:
        """The recorder of counters and histograms."""
        return self._feeder.recorder

    @property
    def shutdown_grace_ms(self) -> int:
        """The time in ms that writes in flight have when the feeder is closed."""
        return self._feeder.grace_ms

    def status_by_worker(self) -> Mapping[str, Status]:
        """Return the status of the feeder under the key ``""``."""
        return self._feeder.status_by_worker()

    def set_worker_number(self, number: int) -> None:
        """Raise ConfigError if several workers would have the same `group_instance_id`."""
        if number > 1 and self.consumer.config.member.group_instance_id is not None:
            raise ConfigError(
                "The consumer of the feeder has a `group_instance_id`, which only one process may "
                "have. Remove it, or run one worker."
            )

    def enable_topic_creation(self) -> None:
        """Raise ConfigError, because a feeder creates no topics."""
        raise ConfigError("--create-topics is for a ConsumerApp. A feeder creates no topics.")

    async def __aenter__(self) -> Self:
        await self._feeder.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:  # noqa: ANN401 - passed on
        await self._feeder.__aexit__(*error)
        _log.info("the feeder has stopped: %s", self._progress())

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set, and log the progress. Raise the feeder's error if it fails."""
        async with Scope("feeder service") as scope:
            running = scope.start(self._feeder.run(), "run the feeder")
            stopped = scope.start(stop.wait(), "wait for the end")
            scope.start(self._log_progress(), "log progress")
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()  # raises the feeder's error; without one, wait for `stop`
            await asyncio.wait({stopped})

    async def drain(self, _grace_ms: int | None = None) -> Drained:
        """Return at once. The end of the ``async with`` block writes the collected records."""
        return Drained({})

    async def remove_member(self, member_id: str) -> None:
        """Do nothing. The group removes the member of a dead worker at its session timeout."""

    def pause(self, *topics: str) -> None:
        """Log that a feeder cannot pause topics."""
        _log.warning("a feeder cannot pause %s", ", ".join(topics))

    def resume(self, *topics: str) -> None:
        """Do nothing, because nothing is paused."""

    def _progress(self) -> str:
        stats = self._feeder.stats()
        lag = "unknown" if stats.lag is None else f"{stats.lag:,}"
        return f"{stats.records:,} records written in {stats.batches:,} batches, lag {lag}"

    async def _log_progress(self) -> None:
        logged = self._progress()
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LINES)
            if (progress := self._progress()) != logged:
                _log.info("%s", progress)
            logged = progress
