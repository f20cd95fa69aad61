"""The health of an app and of its handlers."""

import asyncio
import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from operator import add
from typing import Any, Final

from asyncconsumer.consumer.health import HealthState
from asyncconsumer.errors import brief
from asyncconsumer.handlers.partition_work import WorkState
from asyncconsumer.handlers.runtime import HandlerRuntime
from asyncconsumer.web.status import Status

_PAUSED: Final = "the app is paused until `resume` is called"


class AppState(enum.StrEnum):
    """The lifecycle state of an app."""

    NEW = "new"
    RUNNING = "running"
    PAUSED = "paused"  # by `ConsumerApp.pause`
    DRAINING = "draining"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class HandlerHealth:
    """The counters and gauges of one handler."""

    running: int  # items that are being processed
    in_flight: int  # records waiting or being processed
    in_flight_bytes: int
    finished: int  # items processed without a failure
    failed: int  # attempts that failed
    retried: int
    dead_letters: int
    skipped: int
    parked: int  # written to the retry topic

    def with_that_of(self, other: "HandlerHealth") -> "HandlerHealth":
        """Return the sum of this health and `other`, which is of a handler with the same name."""
        return HandlerHealth(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class AppHealth:
    """The health of an app. `reason` is None unless the app has failed or is paused."""

    state: AppState
    reason: str | None
    handlers: Mapping[str, HandlerHealth]

    def __bool__(self) -> bool:
        return self.state is AppState.RUNNING

    def as_dict(self) -> dict[str, Any]:
        """Return the health as a dict that JSON can represent."""
        return asdict(self)


def health_of(
    state: AppState,
    error: BaseException | None,
    handlers: Iterable[HandlerRuntime],
    *,
    paused: bool = False,
) -> AppHealth:
    """Return the health of an app. Handlers with the same name are summed."""
    each: dict[str, HandlerHealth] = {}
    for runtime in handlers:
        name, health = runtime.handler.name, _of(runtime)
        each[name] = each[name].with_that_of(health) if name in each else health
    if paused:
        return AppHealth(AppState.PAUSED, _PAUSED, each)
    return AppHealth(state, None if error is None else brief(error), each)


def stuck(handlers: Iterable[HandlerRuntime], timeout_ms: int) -> str | None:
    """Return the reason why one of the handlers is stuck, or None if none is.

    A handler is stuck if a call is running and the last completion was `timeout_ms` ago or earlier.
    The last 3 intervals between completions are compared with `timeout_ms` as well.

    A handler also counts as stuck while records cannot be written to its retry or dead letter
    topic, because every failed record waits for that.
    """
    now = asyncio.get_running_loop().time()
    for runtime in handlers:
        if (trouble := runtime.trouble) is not None:
            return f"handler {runtime.handler.name}: {trouble}"
        if (
            not runtime.queue.is_idle
            and (seconds := runtime.queue.completions.longest(now)) >= timeout_ms / 1000
        ):
            return f"handler {runtime.handler.name} finished nothing for {seconds:.0f} s"
    return None


def with_in_flight(
    lag: Mapping[str, Mapping[str, int | None]], handlers: Iterable[HandlerRuntime]
) -> dict[str, dict[str, int | None]]:
    """Return the lag of each partition, increased by its records in flight.

    Records in flight are not processed yet.
    """
    behind = {topic: dict(of_topic) for topic, of_topic in lag.items()}
    for runtime in handlers:
        for (topic, number), work in runtime.queue.partitions.items():
            known = behind.get(topic, {}).get(str(number))
            ledger = work.ledger
            if (
                known is not None
                and work.state is not WorkState.OVER
                and ledger.position is not None
            ):
                behind[topic][str(number)] = known + ledger.position - ledger.first
    return behind


def status_of(app: AppHealth, reading: Status | None, stuck: str | None = None) -> Status:
    """Return a status that combines an app's health with the status of its consumer.

    `reading` is the consumer's status, and `stuck` the reason why a handler is stuck. While the app
    runs, the state is the consumer's, unless a handler is stuck or busy.
    """
    if reading is None:
        return Status(live=True, ready=False, state=app.state, reason="the app was not opened yet")
    handlers = {name: asdict(health) for name, health in app.handlers.items()}
    busy = any(health.in_flight for health in app.handlers.values())
    if app and stuck is not None and (reading.ready or reading.state == HealthState.HANDLER_BOUND):
        state = HealthState.HANDLER_BOUND.value if busy else reading.state
        return replace(reading, ready=False, state=state, reason=stuck, handlers=handlers)
    if app:
        idle = reading.state == HealthState.IDLE
        state = HealthState.CONSUMING.value if idle and busy else reading.state
        return replace(reading, state=state, handlers=handlers)
    return replace(
        reading,
        live=app.state in (AppState.DRAINING, AppState.PAUSED),
        ready=False,
        state=app.state.value,
        reason=app.reason,
        handlers=handlers,
    )


def _of(runtime: HandlerRuntime) -> HandlerHealth:
    counts = runtime.failures.counts
    runtime.queue.count_finished()
    return HandlerHealth(
        running=len(runtime.queue.running),
        in_flight=runtime.queue.load.count,
        in_flight_bytes=runtime.queue.load.size,
        finished=runtime.queue.finished,
        failed=counts["failed"],
        retried=counts["retried"],
        dead_letters=counts["dead letters"],
        skipped=counts["skipped"],
        parked=counts["parked"],
    )
