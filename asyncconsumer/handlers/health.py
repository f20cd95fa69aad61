"""How an app stands, for those who ask."""

import asyncio
import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from operator import add

from asyncconsumer.consumer.health import HealthState
from asyncconsumer.errors import brief
from asyncconsumer.handlers.partition_work import WorkState
from asyncconsumer.handlers.runtime import HandlerRuntime
from asyncconsumer.web.status import Status


class AppState(enum.StrEnum):
    """Where an app is in its life."""

    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class HandlerHealth:
    """What one handler has done, and has to do."""

    running: int  # items that are worked on now
    in_flight: int  # records in hand, worked on or not yet
    in_flight_bytes: int
    finished: int  # items without a failure
    failed: int  # attempts
    retried: int
    dead_letters: int
    skipped: int
    parked: int  # written to the retry topic

    def with_that_of(self, other: "HandlerHealth") -> "HandlerHealth":
        """Both together."""
        return HandlerHealth(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class AppHealth:
    """How an app stands; `reason` says why, if it failed."""

    state: AppState
    reason: str | None
    handlers: Mapping[str, HandlerHealth]

    def __bool__(self) -> bool:
        return self.state is AppState.RUNNING


def health_of(
    state: AppState, error: BaseException | None, handlers: Iterable[HandlerRuntime]
) -> AppHealth:
    """It all in one value; a function that was declared more than once is one handler."""
    each: dict[str, HandlerHealth] = {}
    for one in handlers:
        name, mine = one.handler.name, _of(one)
        each[name] = each[name].with_that_of(mine) if name in each else mine
    return AppHealth(state, None if error is None else brief(error), each)


def stuck(handlers: Iterable[HandlerRuntime], timeout_ms: int) -> str | None:
    """Which handler was called and has come, or lately came, to no end for so long, if one has.

    That dead letters cannot be written is told at once: it holds up all that fails.
    """
    now = asyncio.get_running_loop().time()
    for one in handlers:
        if (trouble := one.trouble) is not None:
            return f"handler {one.handler.name}: {trouble}"
        if one.lanes.running and (seconds := one.lanes.pace.longest(now)) >= timeout_ms / 1000:
            return f"handler {one.handler.name} finished nothing for {seconds:.0f} s"
    return None


def with_in_hand(
    lag: Mapping[str, Mapping[str, int | None]], handlers: Iterable[HandlerRuntime]
) -> dict[str, dict[str, int | None]]:
    """How far behind it is, if what is in hand and not finished is behind, too."""
    behind = {topic: dict(of_topic) for topic, of_topic in lag.items()}
    for one in handlers:
        for (topic, number), share in one.lanes.shares.items():
            known = behind.get(topic, {}).get(str(number))
            ledger = share.ledger
            if (
                known is not None
                and share.state is not WorkState.OVER
                and ledger.position is not None
            ):
                behind[topic][str(number)] = known + ledger.position - ledger.first
    return behind


def status_of(app: AppHealth, reading: Status | None, stuck: str | None = None) -> Status:
    """With what its consumer says of itself, as plain values; while all is well, that counts."""
    if reading is None:
        return Status(live=True, ready=False, state=app.state, reason="it was not opened yet")
    handlers = {name: asdict(one) for name, one in app.handlers.items()}
    busy = any(one.in_flight for one in app.handlers.values())
    if app and stuck is not None and (reading.ready or reading.state == HealthState.HANDLER_BOUND):
        state = HealthState.HANDLER_BOUND.value if busy else reading.state
        return replace(reading, ready=False, state=state, reason=stuck, handlers=handlers)
    if app:
        idle = reading.state == HealthState.IDLE
        state = HealthState.CONSUMING.value if idle and busy else reading.state
        return replace(reading, state=state, handlers=handlers)
    return replace(
        reading,
        live=app.state is AppState.DRAINING,
        ready=False,
        state=app.state.value,
        reason=app.reason,
        handlers=handlers,
    )


def _of(one: HandlerRuntime) -> HandlerHealth:
    counts = one.failures.counts
    return HandlerHealth(
        running=len(one.lanes.running),
        in_flight=one.lanes.load.count,
        in_flight_bytes=one.lanes.load.size,
        finished=one.workers.finished,
        failed=counts["failed"],
        retried=counts["retried"],
        dead_letters=counts["dead letters"],
        skipped=counts["skipped"],
        parked=counts["parked"],
    )
