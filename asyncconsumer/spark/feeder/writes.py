"""Batches on their way into a sink: how many at once, and in which order."""

import asyncio
import copy
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import ClosedError, ConsumerError
from asyncconsumer.spark.feeder.batches import FeedBatch, PartitionFeed
from asyncconsumer.spark.feeder.sink_caller import SinkCaller
from asyncconsumer.spark.sinks.protocol import MergingSink, PreparedBatch, Sink
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)


class WriteObserver(Protocol):
    """Who is told how flights went, and asked before they land."""

    async def may_not_land(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """Those of its partitions that must not be written now."""

    async def landed(self, ends: Mapping[TopicPartition, int]) -> None:
        """The sink has these partitions up to there, durably."""

    async def turned_away(self, starts: Mapping[PartitionFeed, int]) -> None:
        """What begins there may not be written, and no more of these lanes will be."""


@dataclass(slots=True)
class Counts:
    """How much arrived so far."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    refused: int = 0  # parts that the sink would not take
    abandoned: int = 0  # parts that nobody wanted any more
    last_write_seconds: float = 0.0

    def abandon(self, parts: int) -> None:
        """So many were not even tried."""
        self.abandoned += parts

    def land(self, batch: FeedBatch, refused: int, seconds: float) -> None:
        """That is in the sink."""
        self.records += batch.rows
        self.bytes += batch.size
        self.batches += bool(batch.parts)
        self.refused += refused
        self.last_write_seconds = seconds


class FailureState:
    """Why a feeder cannot go on; the first reason stays."""

    def __init__(self) -> None:
        self.there: Final = asyncio.Event()
        self._reason: Exception | None = None
        self._raised = False

    def because(self, error: Exception) -> None:
        """It ends with this error, or with none if it is that something was closed."""
        self._reason = self._reason or error
        self.there.set()

    def check(self, *, again: bool = True) -> None:
        """Raise it, if it is there; or only if it was not raised before."""
        if self._reason is None or isinstance(self._reason, ClosedError):
            return
        if again or not self._raised:
            self._raised = True
            # tracebacks grow where an exception is raised
            raise copy.copy(self._reason) from self._reason.__cause__ or self._reason


class PreparedWrite(NamedTuple):
    """What lands at once: a batch that is prepared, of one flight or of several."""

    ready: PreparedBatch
    lanes: Mapping[TopicPartition, PartitionFeed]

    def of(self, batch: FeedBatch) -> FeedBatch:
        """What is still to be written of that."""
        return batch.without({one for one in batch.parts if not self.lanes[one].alive})

    def joined(self, other: "PreparedWrite", sink: MergingSink) -> "PreparedWrite | None":
        """With the other, which goes on where this one ends; None if it must land alone."""
        lanes = {**self.lanes, **other.lanes}
        # what failed in between has ended its lanes: it would be missing
        if not all(lane.alive for lane in lanes.values()):
            return None
        try:
            ready = sink.join_batches(self.ready, other.ready)
        except Exception:  # noqa: BLE001 - a sink may raise what it likes, and this need not be
            _log.warning("%s: batches could not be joined", sink, exc_info=True)
            return None
        return None if ready is None else PreparedWrite(ready, lanes)


@dataclass(slots=True, eq=False)
class PendingWrite:
    """One batch on its way, and then the news of it: without the data."""

    lanes: Mapping[TopicPartition, PartitionFeed]
    batch: FeedBatch | None  # None once it is in the sink, or never will be
    cargo: PreparedWrite | None = None  # from when it is prepared
    landing: bool = False  # the sink was asked to have it, alone or with others

    @property
    def wanted(self) -> bool:
        """Whether it is still to be written, some of it at least."""
        return self.batch is not None and any(lane.alive for lane in self.lanes.values())

    @property
    def given_up(self) -> bool:
        """Whether it is up to the sink alone how it ends, and nobody wants to know."""
        return self.landing and self.batch is not None and not self.wanted

    def load(self, ready: PreparedBatch) -> PreparedWrite:
        """It is prepared, and may land when it is its turn."""
        self.cargo = PreparedWrite(ready, self.lanes)
        return self.cargo

    def land(self) -> None:
        """The sink is asked to have it now."""
        self.landing = True

    def blocks(self, other: "PendingWrite") -> bool:
        """Whether the other one must wait, for it goes on where this one ends."""
        return self.batch is not None and any(
            lane.alive and self.lanes.get(one) is lane for one, lane in other.lanes.items()
        )

    def over(self) -> None:
        """Nothing more will become of it."""
        self.batch = self.cargo = None


class WriteQueue:
    """At most so many batches at once. Those that share a partition land one after another.

    One that hangs after its partitions were given up counts no more: others go on without it.
    """

    def __init__(self, sink: Sink, asking: SinkCaller, ending: FailureState, *, most: int) -> None:
        self.counts: Final = Counts()
        self._sink = sink
        self._asking = asking
        self._ending = ending
        self._most = most
        self._flights: dict[PendingWrite, None] = {}  # in their order, until all is said of them
        self._news = asyncio.Event()

    @property
    def under_way(self) -> list[FeedBatch]:
        """What is not in the sink yet, and should be."""
        return [one.batch for one in self._flights if one.batch is not None and one.wanted]

    async def slot(self) -> None:
        """Wait until another one may start."""
        while len(self.under_way) >= self._most:
            await self._news.wait()

    def start(
        self,
        scope: Scope,
        batch: FeedBatch,
        lanes: Mapping[TopicPartition, PartitionFeed],
        ground: WriteObserver,
    ) -> None:
        """Send a batch off, with a task of that scope. Ask for a slot before."""
        flight = PendingWrite(lanes, batch)
        scope.start(self._fly(flight, ground), f"write {batch.id}")
        self._flights[flight] = None
        for lane in lanes.values():
            lane.sent = True

    def give_up(self, lanes: Collection[PartitionFeed]) -> None:
        """Nothing more of these is to be written, and what waits for its turn need not."""
        for lane in lanes:
            lane.end()
        self._stir()

    async def ended(self, lanes: Collection[PartitionFeed] | None = None) -> None:
        """Wait until those of these lanes are over and told of, or all that somebody wants."""
        flights = [
            flight
            for flight in self._flights
            if lanes is None or any(lane in lanes for lane in flight.lanes.values())
        ]
        while any(
            flight in self._flights and not (lanes is None and flight.given_up)
            for flight in flights
        ):
            await self._news.wait()

    def _stir(self) -> None:
        """Whoever waits looks again."""
        self._news.set()
        self._news = asyncio.Event()

    # --- one flight ------------------------------------------------------------------------------

    async def _fly(self, flight: PendingWrite, ground: WriteObserver) -> None:
        try:
            ends = await self._flown(flight, ground)
            # one that ends late may find that the partition is somebody else's, or ours anew
            if told := {lane.partition: end for lane, end in ends.items() if lane.alive}:
                await ground.landed(told)
        finally:
            del self._flights[flight]
            self._stir()

    async def _flown(
        self, flight: PendingWrite, ground: WriteObserver
    ) -> Mapping[PartitionFeed, int]:
        """Up to where it is in the sink, and what it took along."""
        batch, aboard = flight.batch, [flight]
        assert batch is not None
        try:
            prepared = await self._asking.ask(f"prepare {batch.id}", self._sink.prepare, batch)
            cargo = flight.load(PreparedBatch(batch, prepared))
            while flight.landing or not self._may_land(flight):
                if flight.batch is None:
                    return {}  # another one took it along, and tells
                await self._news.wait()
            cargo, aboard = self._with_followers(flight, cargo)
            landed = await self._land(cargo, aboard, ground)
            if landed is None:  # only then: what failed may be there all the same
                await self._asking.once(self._sink.discard, prepared)
        except BaseException as error:
            for one in aboard:
                self.give_up(one.lanes.values())  # nothing may land behind a gap
            if not isinstance(error, ConsumerError):
                raise
            self._ending.because(error)
            return {}
        else:
            parts = {} if landed is None else landed.parts
            return {cargo.lanes[one]: part.end for one, part in parts.items()}
        finally:
            for one in aboard:
                one.over()
            self._stir()

    def _may_land(self, flight: PendingWrite) -> bool:
        before = takewhile(lambda other: other is not flight, self._flights)
        return not any(other.blocks(flight) for other in before)

    def _with_followers(
        self, flight: PendingWrite, cargo: PreparedWrite
    ) -> tuple[PreparedWrite, list[PendingWrite]]:
        """What lands now, and whose: with those that wait only for this one, if the sink likes."""
        aboard, sink = [flight], self._sink
        if not (sink.remembers and isinstance(sink, MergingSink)):
            return cargo, aboard
        flights = list(self._flights)
        place = flights.index(flight)
        ahead = flights[:place]
        for other in flights[place + 1 :]:
            alike = not sink.apart or other.lanes.keys() == flight.lanes.keys()
            free = alike and not other.landing and not any(one.blocks(other) for one in ahead)
            both = cargo.joined(other.cargo, sink) if free and other.cargo is not None else None
            if both is None:
                ahead.append(other)  # and what goes on where it ends waits for it
            else:
                cargo = both
                aboard.append(other)
        return cargo, aboard

    async def _land(
        self, cargo: PreparedWrite, aboard: Collection[PendingWrite], ground: WriteObserver
    ) -> FeedBatch | None:
        """What of it is in the sink now; None if nothing of it was even tried."""
        now = asyncio.get_running_loop().time
        batch, prepared = cargo.ready
        wanted = cargo.of(batch)
        if wanted.parts and (held_back := await ground.may_not_land(wanted)):
            await self._turn_away(cargo, held_back, ground)
        wanted = cargo.of(wanted)
        self.counts.abandon(len(batch.parts) - len(wanted.parts))
        if not wanted.parts:
            return None
        began = now()
        for flight in aboard:
            flight.land()
        away = await self._asking.ask(f"write {batch.id}", self._sink.publish, wanted, prepared)
        landed = wanted.without(away)
        for one, part in landed.parts.items():
            cargo.lanes[one].landed(part.end)
        self.counts.land(landed, len(away), now() - began)
        if away:
            await self._turn_away(cargo, away, ground)
        return landed

    async def _turn_away(
        self, cargo: PreparedWrite, which: Collection[TopicPartition], ground: WriteObserver
    ) -> None:
        """Nothing may land behind these; they are read again, if they are ours."""
        starts = {cargo.lanes[one]: cargo.ready.batch.parts[one].start for one in which}
        self.give_up(starts)
        await ground.turned_away(starts)
