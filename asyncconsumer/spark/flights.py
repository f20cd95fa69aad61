"""Batches on their way into a sink: how many at once, and in which order."""

import asyncio
import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from asyncconsumer.errors import ClosedError, ConsumerError
from asyncconsumer.model import TopicPartition
from asyncconsumer.spark.asking import Asking
from asyncconsumer.spark.batches import Batch, Lane
from asyncconsumer.spark.sinks import Sink
from asyncconsumer.tasks.scope import Scope


class Ground(Protocol):
    """Who is told how flights went, and asked before they land."""

    async def may_not_land(self, batch: Batch) -> Collection[TopicPartition]:
        """Those of its partitions that must not be written now."""

    async def landed(self, batch: Batch) -> None:
        """It is in the sink, durably."""

    async def turned_away(self, lanes: Collection[Lane]) -> None:
        """The sink has something else where these wanted to write, and takes no more of them."""


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

    def land(self, batch: Batch, refused: int, seconds: float) -> None:
        """That is in the sink."""
        self.records += batch.rows
        self.bytes += batch.size
        self.batches += bool(batch.parts)
        self.refused += refused
        self.last_write_seconds = seconds


class Ending:
    """Why a feeder cannot go on; the first reason stays."""

    def __init__(self) -> None:
        self.there: Final = asyncio.Event()
        self._reason: ConsumerError | None = None
        self._raised = False

    def because(self, error: ConsumerError) -> None:
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


@dataclass(slots=True, eq=False)
class Flight:
    """One batch on its way."""

    batch: Batch
    lanes: Mapping[TopicPartition, Lane]
    over: asyncio.Event = field(default_factory=asyncio.Event)  # it is in the sink, or never will
    told: asyncio.Event = field(default_factory=asyncio.Event)  # and whoever must know that does

    def wanted(self, batch: Batch) -> Batch:
        """What is still to be written of it."""
        return batch.without({one for one in batch.parts if not self.lanes[one].alive})


class Flights:
    """At most so many batches at once. Those that share a partition land one after another."""

    def __init__(self, sink: Sink, asking: Asking, ending: Ending, *, most: int) -> None:
        self.counts: Final = Counts()
        self._sink = sink
        self._asking = asking
        self._ending = ending
        self._most = most
        self._under_way: dict[Flight, None] = {}  # in their order
        self._slot = asyncio.Event()

    @property
    def under_way(self) -> list[Batch]:
        """What is not in the sink yet."""
        return [flight.batch for flight in self._under_way if not flight.over.is_set()]

    async def slot(self) -> None:
        """Wait until another one may start."""
        while len(self.under_way) >= self._most:
            self._slot.clear()
            await self._slot.wait()

    def start(
        self, scope: Scope, batch: Batch, lanes: Mapping[TopicPartition, Lane], ground: Ground
    ) -> None:
        """Send a batch off, with a task of that scope. Ask for a slot before."""
        flight = Flight(batch, lanes)
        before = {one for lane in lanes.values() if (one := lane.sent(flight)) is not None}
        self._under_way[flight] = None
        scope.start(self._fly(flight, before, ground), f"write {batch.id}")

    async def ended(self, lanes: Collection[Lane] | None = None) -> None:
        """Wait until those of these lanes are over, or all."""
        flights = self._under_way if lanes is None else {lane.tail for lane in lanes}
        for flight in list(flights):
            if flight is not None:
                await flight.told.wait()

    # --- one flight ------------------------------------------------------------------------------

    async def _fly(self, flight: Flight, before: Collection[Flight], ground: Ground) -> None:
        try:
            landed = await self._flown(flight, before, ground)
            if landed is not None and landed.parts:
                await ground.landed(landed)
        finally:
            flight.told.set()
            del self._under_way[flight]

    async def _flown(
        self, flight: Flight, before: Collection[Flight], ground: Ground
    ) -> Batch | None:
        """What of it is in the sink, or None."""
        try:
            what = f"prepare {flight.batch.id}"
            prepared = await self._asking.ask(what, self._sink.prepare, flight.batch)
            for other in before:
                await other.over.wait()
            landed = await self._land(flight, ground, prepared)
            if landed is None:  # only then: what failed may be there all the same
                await self._asking.once(self._sink.discard, prepared)
        except ConsumerError as error:
            for lane in flight.lanes.values():
                lane.end()  # nothing may land behind a gap
            self._ending.because(error)
            return None
        else:
            return landed
        finally:
            flight.over.set()
            self._slot.set()

    async def _land(self, flight: Flight, ground: Ground, prepared: object) -> Batch | None:
        """What of it is in the sink now; None if nothing of it was even tried."""
        now, batch = asyncio.get_running_loop().time, flight.batch
        wanted = flight.wanted(batch)
        if wanted.parts:
            held_back = await ground.may_not_land(wanted)
            wanted = flight.wanted(wanted.without(held_back))
        self.counts.abandon(len(batch.parts) - len(wanted.parts))
        if not wanted.parts:
            return None
        began = now()
        away = await self._asking.ask(f"write {batch.id}", self._sink.publish, wanted, prepared)
        landed = wanted.without(away)
        for one, part in landed.parts.items():
            flight.lanes[one].landed(part.end)
        self.counts.land(landed, len(away), now() - began)
        if away:
            lanes = [flight.lanes[one] for one in away]
            for lane in lanes:
                lane.end()
            await ground.turned_away(lanes)
        return landed
