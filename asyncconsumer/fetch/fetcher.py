"""The fetcher, which sends one fetch request at a time to one broker.

A request contains the partitions whose channels (the buffers of streams) have room.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, TypeAlias

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import (
    ConsumerError,
    FetchSessionNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    MalformedResponse,
)
from asyncconsumer.fetch.cursor import Cursor, ReplicaPlacement
from asyncconsumer.fetch.fetch_request import PartitionResponse
from asyncconsumer.fetch.fetch_session import FetchResponse, FetchSession
from asyncconsumer.fetch.plan import FetchPlan
from asyncconsumer.fetch.policy import NO_REPLICA
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.net.connection import BrokerConnection, RawResponse
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.records import decoding
from asyncconsumer.records.first_timestamp import first_timestamp
from asyncconsumer.types import Address

_SHORT_WAIT_MS: Final = 20  # wait at the broker while partitions may be added soon
_LONG_POLL: Final = 0.1  # seconds; opening a connection takes less
_SMALL_RESPONSE: Final = 16 * 2**10  # bytes; smaller responses are parsed as soon as they arrive
_SESSION_ERRORS: Final = (FetchSessionNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)


class Refusal(NamedTuple):
    """A report that a partition could not be fetched.

    `leader` is set if the broker's response names the current leader (KIP-951).
    """

    cursor: Cursor
    version: int
    error: ConsumerError
    leader: ReplicaPlacement | None = None


class Redirect(NamedTuple):
    """A report that the leader redirects a partition to a preferred read replica (KIP-392)."""

    cursor: Cursor
    version: int
    node_id: int


class Divergence(NamedTuple):
    """A report that the log of a partition differs from the records that were read.

    `epoch` and `offset` are the last common leader epoch and its end offset.
    """

    cursor: Cursor
    version: int
    epoch: int
    offset: int


class Finish(NamedTuple):
    """A report that all records of a partition up to its end offset were fetched."""

    cursor: Cursor
    version: int


Report: TypeAlias = Refusal | Redirect | Divergence | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherContext:
    """The objects and options that all fetchers of a manager share."""

    brokers: BrokerPool
    budget: Budget
    recorder: Recorder
    config: FetchConfig
    reports: "asyncio.Queue[Report]"
    expects_cursors: Callable[[], bool]  # whether partitions may be added at any moment
    fetchers: Callable[[], int]  # number of fetchers
    # moves the cursors of the express fetcher for the same broker to this fetcher
    take_back: Callable[["Fetcher"], None]

    @property
    def max_request_bytes(self) -> int:
        """The most bytes of the memory budget that one Fetch request may reserve for its response.

        The limit lets all fetchers have a request in flight at the same time.
        """
        return self.budget.limit // max(8, 2 * self.fetchers())

    @property
    def min_free_bytes(self) -> int:
        """The bytes that must be free in the memory budget for a usual request.

        With fewer free bytes, only records for channels without data are fetched. Otherwise
        requests for fewer and fewer bytes would be sent while the budget is nearly used up.
        """
        return min(self.config.max_partition_fetch_bytes, self.max_request_bytes)

    @property
    def response_bytes(self) -> int:
        """The most bytes that the response to the next request may have.

        If less than `min_free_bytes` is free, these are the bytes kept for one channel.
        """
        if self.budget.free < self.min_free_bytes:
            return self.budget.share
        return min(self.config.fetch_max_bytes, self.max_request_bytes, self.budget.free)


class _InFlightFetch(NamedTuple):
    """A Fetch request in flight, with the bytes that are reserved for the response.

    `sent` and `due` are loop times. The broker is expected to respond by `due`, with an empty
    response if there are no records.
    """

    reserved: int
    sent: float
    due: float


class _FetchPause(NamedTuple):
    """The seconds to wait before the next request, and the reason."""

    seconds: float
    reason: str


class Fetcher:
    """A task that fetches records for its cursors into their channels, until it is cancelled.

    A cursor is the fetch position of one partition, and a channel is the buffer of its stream. A
    fetcher never waits for a reader: a partition whose channel has no room is left out of the
    request.

    A cursor with an error is removed, and the error is reported to the `PartitionPlacer`. An error
    of the whole request concerns all cursors.
    """

    # limit of the wait at the broker, if below the configured one
    max_wait_ms: ClassVar[int | None] = None

    def __init__(self, node_id: int, address: Address, slot: int, context: FetcherContext) -> None:
        self.node_id = node_id
        self.address = address
        self.slot = slot
        # when the fetcher began to wait for the broker, over all attempts
        self.waiting_since: float | None = None
        self.connection: BrokerConnection | None = None
        self._context = context
        self._plan = FetchPlan(context.budget)
        # cursors added since the last successful response
        self._unconfirmed: dict[Cursor, None] = {}
        self._session = FetchSession()
        self._in_flight: _InFlightFetch | None = None
        self._pause: _FetchPause | None = None  # set while no request may be sent
        self._wakeup = asyncio.Event()  # set when there may be something to do

    @property
    def cursors(self) -> list[Cursor]:
        """The cursors of this fetcher."""
        return self._plan.cursors

    @property
    def idle_poll(self) -> bool:
        """Whether a long poll is in flight although the fetcher has no cursors left."""
        return not self._plan and self.in_long_poll

    @property
    def in_long_poll(self) -> bool:
        """Whether the broker may delay its response to the request in flight for long.

        A request on a new connection would then be answered sooner.
        """
        if self._in_flight is None:
            return False
        return self._in_flight.due - asyncio.get_running_loop().time() > _LONG_POLL

    @property
    def blocked_reason(self) -> str | None:
        """The reason why the fetcher sends no request now, or None if it may send requests."""
        if self._pause is None:
            return None
        return f"the broker {self.node_id} at {self.address} {self._pause.reason}"

    def add(self, cursor: Cursor) -> None:
        """Add a cursor, so that the next request fetches its partition."""
        cursor.fetcher = self
        self._plan.add(cursor)
        self._unconfirmed[cursor] = None
        self._wakeup.set()

    def last_response(self, cursor: Cursor) -> float | None:
        """Return the loop time of the broker's last response for a cursor.

        It is None if there was no response since the cursor was added.
        """
        if self.connection is None or cursor in self._unconfirmed:
            return None
        return self.connection.last_received

    def remove(self, cursor: Cursor) -> None:
        """Remove a cursor. A response in flight is ignored for its partition."""
        self._plan.remove(cursor)
        cursor.fetcher = None
        cursor.detach()

    def refresh(self, cursor: Cursor) -> None:
        """Update later requests after the partition of a cursor was paused or resumed."""
        self._plan.mark_changed(cursor)
        self._wakeup.set()

    async def run(self) -> None:
        """Send requests and process responses until cancelled."""
        try:
            while True:
                try:
                    self._context.take_back(self)
                    if not (self._plan and await self._round()):
                        await self._wakeup.wait()
                except _SESSION_ERRORS as error:
                    if seconds := self._session.on_refusal():
                        reason = f"refuses fetch sessions ({type(error).__name__})"
                        await self._wait_pause(_FetchPause(seconds, reason))
                except ConsumerError as error:
                    if isinstance(error, MalformedResponse) and self.connection is not None:
                        # the rest of the byte stream cannot be parsed reliably
                        self.connection.close(error)
                    self._session.reset()
                    self._refuse_all(error)
                if not self._plan:
                    self._wakeup.clear()
        finally:
            self._context.budget.cancel_notify(self._wakeup)

    # --- requests --------------------------------------------------------------------------------

    async def _round(self) -> bool:
        """Send one request and process its response. Return False if no cursor can be fetched."""
        if self.waiting_since is None:
            self.waiting_since = asyncio.get_running_loop().time()
        sent = self._send(await self._connect())
        if sent is None:
            self.waiting_since = None
            return False
        try:
            raw = await sent
            if len(raw.body) > _SMALL_RESPONSE:
                self._process(raw)  # before the next request: readers are busy with this much data
        finally:
            self._release_reserved()
        if self._pause is not None:
            await self._wait_pause(self._pause)
        return True

    async def _wait_pause(self, pause: _FetchPause) -> None:
        """Wait for `pause.seconds`. This fetcher sends no request meanwhile."""
        self._pause = pause
        self.waiting_since = None  # the broker is not late: this fetcher pauses
        try:
            await asyncio.sleep(pause.seconds)
        finally:
            self._pause = None

    async def _connect(self) -> BrokerConnection:
        context = self._context
        connection = await context.brokers.connection(self.address, Traffic.FETCH, slot=self.slot)
        if connection is not self.connection:
            self._session.reset()
            self.connection = connection
        return connection

    def _send(self, connection: BrokerConnection) -> asyncio.Future[RawResponse] | None:
        """Send a request for all cursors whose channels have room. Return a future of the response.

        Return None if no channel has room. The wakeup event is then set when a channel gains room
        or the budget has free bytes.
        """
        self._wakeup.clear()
        context, config, plan = self._context, self._context.config, self._plan
        size = config.max_partition_fetch_bytes
        has_cursors = plan.apply_to(self._session, context.min_free_bytes, size)
        if plan.held_back:
            context.budget.notify_on_release(self._wakeup)
        if not has_cursors:
            return None
        wait = config.fetch_max_wait_ms
        if self.max_wait_ms is not None:
            wait = min(wait, self.max_wait_ms)
        if plan.reader_is_active or context.expects_cursors():
            wait = min(wait, _SHORT_WAIT_MS)
        max_bytes = context.response_bytes
        message = self._session.request(
            config,
            connection.versions,
            max_wait_ms=wait,
            max_bytes=max_bytes,
            rack=self._rack(),
        )
        response = connection.send_raw(message, on_response=self._process_if_small)
        context.budget.take(max_bytes)
        now = asyncio.get_running_loop().time()
        self._in_flight = _InFlightFetch(max_bytes, now, now + wait / 1000)
        return response

    def _rack(self) -> str:
        """Return the client rack to send, or "" while a cursor avoids replicas after a failure.

        A leader redirects only clients that send a rack.
        """
        rack = self._context.config.client_rack
        if rack:
            now = asyncio.get_running_loop().time()
            replicas = (cursor.replica for cursor in self._plan.cursors)
            if any(each is not NO_REPLICA and each.is_avoided(now) for each in replicas):
                return ""
        return rack

    # --- responses -------------------------------------------------------------------------------

    def _process_if_small(self, raw: RawResponse) -> None:
        """Process a small response synchronously when it arrives, before its future resolves.

        A large response is left to `_round`.
        """
        if len(raw.body) <= _SMALL_RESPONSE:
            self._process(raw)

    def _process(self, raw: RawResponse) -> None:
        """Process a response without awaiting: push its records to their channels.

        The bytes that were reserved for the response are free again afterwards.
        """
        recorder = self._context.recorder
        if self._in_flight is not None:
            now = asyncio.get_running_loop().time()
            recorder.fetch_duration.observe(now - self._in_flight.sent)
        recorder.fetch_size.observe(len(raw.body))
        self._release_reserved()
        self.waiting_since = None
        self._context.brokers.clear_suspect(self.address)
        response = self._session.parse_response(raw)
        if seconds := response.throttle:
            recorder.count_throttled(seconds)
            self._pause = _FetchPause(seconds, f"throttles this client for {seconds:g} s")
        self._deliver(response)

    def _release_reserved(self) -> None:
        if self._in_flight is not None:
            self._context.budget.give_back(self._in_flight.reserved)
            self._in_flight = None

    def _deliver(self, response: FetchResponse) -> None:
        """Push the records of a response to their channels, and report the errors of partitions.

        This awaits nothing, because a cancellation between two partitions would lose records.
        """
        requested = self._plan.requested
        unconfirmed, self._unconfirmed = (
            self._unconfirmed,
            {cursor: None for cursor in self._unconfirmed if cursor.partition not in requested},
        )
        alone = sum(1 for part in response.parts if part.data) == 1
        for part in response.parts:
            cursor = self._plan.requested_cursor(part.partition)
            if cursor is None or cursor.target.channel.closed:
                continue  # the cursor was removed since the request; another fetcher may have it
            if part.error is not None:
                self._report(Refusal(cursor, 0, part.error, _leader(part, response)))
            elif part.diverging is not None:
                self._report(Divergence(cursor, 0, *part.diverging))
            elif part.preferred_replica >= 0:
                self._report(Redirect(cursor, 0, part.preferred_replica))
            else:
                self._accept(cursor, part, alone=alone)
        for cursor in unconfirmed:
            if cursor.fetcher is self and cursor.partition in requested:
                cursor.clear_errors()

    def _accept(self, cursor: Cursor, part: PartitionResponse, *, alone: bool) -> None:
        cursor.set_log_end(part.high_watermark, part.last_stable_offset)
        if not part.data:
            return
        end, epoch = part.end
        if end <= cursor.offset:
            self._report(Refusal(cursor, 0, part.decode_error(self._context.config)))
            return
        if not alone:
            # A view would keep the whole response frame in memory, with the data of other
            # partitions. A copy keeps only the bytes that are charged to the budget. `room_for`
            # recycles memory, because new memory would cost more.
            room = memoryview(decoding.room_for(len(part.data)))
            room[:] = part.data
            part = part._replace(data=room)
        records = part.records(self._context.config, cursor.target.end, self._context.budget.bodies)
        if cursor.target.end is not None:  # records from the end offset on are not delivered
            end = min(end, cursor.target.end)
        size = len(part.data)
        chunk = Chunk(
            cursor.partition,
            part.offset,
            end,
            cursor.target.epoch,
            epoch,
            size,
            records,
            first_timestamp(part.data),
            self._context.recorder.meter(cursor.partition),
        )
        cursor.advance(end, epoch)
        self._context.budget.take(size)
        cursor.target.channel.push(chunk)
        self._plan.mark_changed(cursor)
        if cursor.finished:
            self._report(Finish(cursor, 0))

    # --- errors ----------------------------------------------------------------------------------

    def _report(self, report: Report) -> None:
        """Remove the cursor of a report, and queue the report for the `PartitionPlacer`."""
        if isinstance(report, Refusal):
            self._context.recorder.count_error("fetch_errors_total", report.error)
        self.remove(report.cursor)
        self._context.reports.put_nowait(report._replace(version=report.cursor.version))

    def _refuse_all(self, error: ConsumerError) -> None:
        for cursor in self.cursors:
            self._report(Refusal(cursor, 0, error))


class ExpressFetcher(Fetcher):
    """A fetcher for cursors that were added while the usual fetcher has a long poll in flight.

    A broker answers the requests of one connection in order. Without an express fetcher, a seek
    would wait for the end of the poll. The cursors move to the usual fetcher when its poll ends.
    """

    max_wait_ms = _SHORT_WAIT_MS


def _leader(part: PartitionResponse, response: FetchResponse) -> ReplicaPlacement | None:
    """Return the leader that the broker's refusal names (KIP-951), or None."""
    if part.current_leader is None:
        return None
    node_id, epoch = part.current_leader
    address = response.nodes.get(node_id)
    return None if address is None else ReplicaPlacement(node_id, address, epoch)
