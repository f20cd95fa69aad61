"""Writes in flight to a sink: their limit and their order."""

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
    """A listener that is asked before a batch is published, and notified of the result."""

    async def may_not_land(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """Return the partitions of `batch` that must not be written now."""

    async def landed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Handle that the sink durably has these partitions up to the given offsets."""

    async def turned_away(self, starts: Mapping[PartitionFeed, int]) -> None:
        """Handle that parts with these starts were rejected. Their feeds have ended."""


@dataclass(slots=True)
class Counts:
    """The totals of all writes so far."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    refused: int = 0  # parts that the sink refused
    abandoned: int = 0  # parts whose feed had ended before the write
    last_write_seconds: float = 0.0

    def abandon(self, parts: int) -> None:
        """Count parts that were not passed to the sink."""
        self.abandoned += parts

    def land(self, batch: FeedBatch, refused: int, seconds: float) -> None:
        """Count a batch that is in the sink, and the parts that were refused."""
        self.records += batch.rows
        self.bytes += batch.size
        self.batches += bool(batch.parts)
        self.refused += refused
        self.last_write_seconds = seconds


class FailureState:
    """The first reason why a feeder cannot continue."""

    def __init__(self) -> None:
        self.there: Final = asyncio.Event()
        self._reason: Exception | None = None
        self._raised = False

    def because(self, error: Exception) -> None:
        """Set the reason, unless there is one. A `ClosedError` ends the feeder without an error."""
        self._reason = self._reason or error
        self.there.set()

    def check(self, *, again: bool = True) -> None:
        """Raise the reason, if there is one. With `again=False`, raise it only if it never was."""
        if self._reason is None or isinstance(self._reason, ClosedError):
            return
        if again or not self._raised:
            self._raised = True
            # a copy, because each raise extends the traceback
            raise copy.copy(self._reason) from self._reason.__cause__ or self._reason


class PreparedWrite(NamedTuple):
    """A prepared batch that is published at once, of one pending write or of several merged."""

    ready: PreparedBatch
    lanes: Mapping[TopicPartition, PartitionFeed]

    def of(self, batch: FeedBatch) -> FeedBatch:
        """Return the parts of `batch` whose feeds have not ended."""
        return batch.without({one for one in batch.parts if not self.lanes[one].alive})

    def joined(self, other: "PreparedWrite", sink: MergingSink) -> "PreparedWrite | None":
        """Return this write merged with `other`, which follows it; None if they must stay apart."""
        lanes = {**self.lanes, **other.lanes}
        # a failed write between the two has ended its feeds: its records would be missing
        if not all(lane.alive for lane in lanes.values()):
            return None
        try:
            ready = sink.join_batches(self.ready, other.ready)
        except Exception:  # noqa: BLE001 - a sink may raise anything; merging is optional
            _log.warning("%s: batches could not be joined", sink, exc_info=True)
            return None
        return None if ready is None else PreparedWrite(ready, lanes)


@dataclass(slots=True, eq=False)
class PendingWrite:
    """One batch in flight. The batch is released before the observer is notified."""

    lanes: Mapping[TopicPartition, PartitionFeed]
    batch: FeedBatch | None  # None once it is in the sink, or never will be
    cargo: PreparedWrite | None = None  # set when it is prepared
    landing: bool = False  # the sink was asked to publish it, alone or merged

    @property
    def wanted(self) -> bool:
        """Return whether at least a part of the batch is still to be written."""
        return self.batch is not None and any(lane.alive for lane in self.lanes.values())

    @property
    def given_up(self) -> bool:
        """Return whether the sink is still publishing the batch after all its feeds have ended."""
        return self.landing and self.batch is not None and not self.wanted

    def load(self, ready: PreparedBatch) -> PreparedWrite:
        """Store the prepared batch until it is its turn to be published."""
        self.cargo = PreparedWrite(ready, self.lanes)
        return self.cargo

    def land(self) -> None:
        """Mark that the sink is being asked to publish the batch."""
        self.landing = True

    def blocks(self, other: "PendingWrite") -> bool:
        """Return whether `other` must wait because it continues where this write ends."""
        return self.batch is not None and any(
            lane.alive and self.lanes.get(one) is lane for one, lane in other.lanes.items()
        )

    def over(self) -> None:
        """Release the batch: the write has ended."""
        self.batch = self.cargo = None


class WriteQueue:
    """The writes in flight, limited in number. Batches of one partition are published in order.

    A write that hangs after its feeds have ended no longer counts: other writes may start.
    """

    def __init__(self, sink: Sink, asking: SinkCaller, ending: FailureState, *, most: int) -> None:
        self.counts: Final = Counts()
        self._sink = sink
        self._asking = asking
        self._ending = ending
        self._most = most
        self._flights: dict[PendingWrite, None] = {}  # in order, until they are reported
        self._news = asyncio.Event()

    @property
    def under_way(self) -> list[FeedBatch]:
        """The batches that are still to be written."""
        return [one.batch for one in self._flights if one.batch is not None and one.wanted]

    async def slot(self) -> None:
        """Wait until another write may start."""
        while len(self.under_way) >= self._most:
            await self._news.wait()

    def start(
        self,
        scope: Scope,
        batch: FeedBatch,
        lanes: Mapping[TopicPartition, PartitionFeed],
        ground: WriteObserver,
    ) -> None:
        """Start the write of a batch, as a task of `scope`. Wait for a `slot` before."""
        flight = PendingWrite(lanes, batch)
        scope.start(self._fly(flight, ground), f"write {batch.id}")
        self._flights[flight] = None
        for lane in lanes.values():
            lane.sent = True

    def give_up(self, lanes: Collection[PartitionFeed]) -> None:
        """End these feeds, and wake the writes that wait."""
        for lane in lanes:
            lane.end()
        self._stir()

    async def ended(self, lanes: Collection[PartitionFeed] | None = None) -> None:
        """Wait until the writes of these feeds have ended and were reported.

        Without `lanes`, wait for all writes except those whose feeds have all ended.
        """
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
        """Wake all waiting tasks."""
        self._news.set()
        self._news = asyncio.Event()

    # --- one write -------------------------------------------------------------------------------

    async def _fly(self, flight: PendingWrite, ground: WriteObserver) -> None:
        try:
            ends = await self._flown(flight, ground)
            # a feed may have ended meanwhile: its partition was revoked, or has a new feed
            if told := {lane.partition: end for lane, end in ends.items() if lane.alive}:
                await ground.landed(told)
        finally:
            del self._flights[flight]
            self._stir()

    async def _flown(
        self, flight: PendingWrite, ground: WriteObserver
    ) -> Mapping[PartitionFeed, int]:
        """Return the end in the sink of each feed of this write and of writes merged into it."""
        batch, aboard = flight.batch, [flight]
        assert batch is not None
        try:
            prepared = await self._asking.ask(f"prepare {batch.id}", self._sink.prepare, batch)
            cargo = flight.load(PreparedBatch(batch, prepared))
            while flight.landing or not self._may_land(flight):
                if flight.batch is None:
                    return {}  # it was merged into another write, which reports it
                await self._news.wait()
            cargo, aboard = self._with_followers(flight, cargo)
            landed = await self._land(cargo, aboard, ground)
            if landed is None:  # not after an error: the batch may be in the sink
                await self._asking.once(self._sink.discard, prepared)
        except BaseException as error:
            for one in aboard:
                self.give_up(one.lanes.values())  # nothing may be written after a gap
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
        """Return what to publish now, and the pending writes that it contains.

        A `MergingSink` may merge the writes that wait only for this one.
        """
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
                ahead.append(other)  # writes that continue where it ends wait for it
            else:
                cargo = both
                aboard.append(other)
        return cargo, aboard

    async def _land(
        self, cargo: PreparedWrite, aboard: Collection[PendingWrite], ground: WriteObserver
    ) -> FeedBatch | None:
        """Publish a batch. Return the parts now in the sink; None if the sink was not called."""
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
        """End the feeds of rejected parts, and notify the observer, which reads them again."""
        starts = {cargo.lanes[one]: cargo.ready.batch.parts[one].start for one in which}
        self.give_up(starts)
        await ground.turned_away(starts)
