"""One fetcher: one broker, one request at a time, for all of its partitions that have room."""

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
from asyncconsumer.net.connection import BrokerConnection, RawResponse
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.records import decoding
from asyncconsumer.types import Address

_SHORT_WAIT_MS: Final = 20  # at the broker, while somebody may want to be asked for at any moment
_LONG: Final = 0.1  # seconds that a new connection surely takes less than
_SMALL: Final = 16 * 2**10  # bytes of an answer
_SESSION_IS_OVER: Final = (FetchSessionNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)


class Refusal(NamedTuple):
    """A partition that could not be fetched, and the leader if the broker named one."""

    cursor: Cursor
    version: int
    error: ConsumerError
    leader: ReplicaPlacement | None = None


class Redirect(NamedTuple):
    """A partition that a nearer replica has."""

    cursor: Cursor
    version: int
    node_id: int


class Divergence(NamedTuple):
    """A partition whose log parts from what was read, at an offset of an epoch."""

    cursor: Cursor
    version: int
    epoch: int
    offset: int


class Finish(NamedTuple):
    """A partition that was fetched to its end."""

    cursor: Cursor
    version: int


Report: TypeAlias = Refusal | Redirect | Divergence | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherContext:
    """What all fetchers of a manager share."""

    brokers: BrokerPool
    budget: Budget
    config: FetchConfig
    reports: "asyncio.Queue[Report]"
    expecting: Callable[[], bool]  # whether partitions may be added at any moment
    fetchers: Callable[[], int]  # how many there are
    take_back: Callable[["Fetcher"], None]  # give it cursors that an express fetcher has for it

    @property
    def share(self) -> int:
        """What one request may reserve: so much that all fetchers can have one on its way."""
        return self.budget.limit // max(8, 2 * self.fetchers())

    @property
    def unit(self) -> int:
        """Bytes below which it is not worth to ask: smaller and smaller fetches would follow."""
        return min(self.config.max_partition_fetch_bytes, self.share)


class _InFlightFetch(NamedTuple):
    """A request: the bytes of the budget for its answer, which comes by then, if only to say no."""

    reserved: int
    due: float


class _FetchPause(NamedTuple):
    """A wait before the next request, and why."""

    seconds: float
    reason: str


class Fetcher:
    """Fetches for the cursors that it is given, into their channels, until it is cancelled.

    It never waits for a reader: a partition whose channel has no room is left out of the request.
    What goes wrong with a partition, or with all of them, is reported; the cursor is gone then.
    """

    most_wait_ms: ClassVar[int | None] = None  # at the broker, if it is less than configured

    def __init__(self, node_id: int, address: Address, lane: int, around: FetcherContext) -> None:
        self.node_id = node_id
        self.address = address
        self.lane = lane
        self.waiting_since: float | None = None  # for a sign of the broker, over all tries
        self.connection: BrokerConnection | None = None
        self._around = around
        self._plan = FetchPlan(around.budget)
        self._untried: dict[Cursor, None] = {}  # of whose broker nothing good was heard since
        self._session = FetchSession()
        self._under_way: _InFlightFetch | None = None
        self._rest: _FetchPause | None = None  # while the broker is to be left alone
        self._bell = asyncio.Event()  # there may be something to do

    @property
    def cursors(self) -> list[Cursor]:
        """Those that it has now."""
        return self._plan.cursors

    @property
    def idle_poll(self) -> bool:
        """Whether its request may wait at the broker for long, and nobody wants the answer."""
        return not self._plan and self.polls_for_long

    @property
    def polls_for_long(self) -> bool:
        """Whether its request may wait at the broker for longer than a new connection takes."""
        if self._under_way is None:
            return False
        return self._under_way.due - asyncio.get_running_loop().time() > _LONG

    @property
    def hindrance(self) -> str | None:
        """Why it does not ask its broker at the moment, if there is a reason."""
        if self._rest is None:
            return None
        return f"the broker {self.node_id} at {self.address} {self._rest.reason}"

    def add(self, cursor: Cursor) -> None:
        """Fetch for it from now on."""
        cursor.fetcher = self
        self._plan.add(cursor)
        self._untried[cursor] = None
        self._bell.set()

    def last_answer(self, cursor: Cursor) -> float | None:
        """When the broker last answered, by the loop's clock; None if never since the cursor."""
        if self.connection is None or cursor in self._untried:
            return None
        return self.connection.last_heard

    def remove(self, cursor: Cursor) -> None:
        """Fetch no more for it, and leave it alone if an answer comes."""
        self._plan.remove(cursor)
        cursor.fetcher = None
        cursor.take_away()

    def refresh(self, cursor: Cursor) -> None:
        """It was paused, or may be fetched again."""
        self._plan.changed(cursor)
        self._bell.set()

    async def run(self) -> None:
        """Fetch, for ever."""
        try:
            while True:
                try:
                    self._around.take_back(self)
                    if not (self._plan and await self._round()):
                        await self._bell.wait()
                except _SESSION_IS_OVER as error:
                    if seconds := self._session.refused():
                        reason = f"refuses fetch sessions ({type(error).__name__})"
                        await self._leave_alone(_FetchPause(seconds, reason))
                except ConsumerError as error:
                    if isinstance(error, MalformedResponse) and self.connection is not None:
                        self.connection.close(error)  # nothing behind it can be trusted
                    self._session.reset()
                    self._refuse_all(error)
                if not self._plan:
                    self._bell.clear()
        finally:
            self._around.budget.silence(self._bell)

    # --- asking ----------------------------------------------------------------------------------

    async def _round(self) -> bool:
        """One request and its answer; False if there is nobody to ask for."""
        if self.waiting_since is None:
            self.waiting_since = asyncio.get_running_loop().time()
        answer = self._send(await self._connect())
        if answer is None:
            self.waiting_since = None
            return False
        try:
            raw = await answer
            if len(raw.body) > _SMALL:
                self._land(raw)  # and ask for more: of so much readers have enough to do meanwhile
        finally:
            self._give_back()
        if self._rest is not None:
            await self._leave_alone(self._rest)
        return True

    async def _leave_alone(self, rest: _FetchPause) -> None:
        """Wait until the broker may be asked again."""
        self._rest = rest
        self.waiting_since = None  # it is not the broker that is silent
        try:
            await asyncio.sleep(rest.seconds)
        finally:
            self._rest = None

    async def _connect(self) -> BrokerConnection:
        around = self._around
        connection = await around.brokers.connection(self.address, Traffic.FETCH, lane=self.lane)
        if connection is not self.connection:
            self._session.reset()
            self.connection = connection
        return connection

    def _send(self, connection: BrokerConnection) -> asyncio.Future[RawResponse] | None:
        """Ask for all that have room; None if there are none, the bell then tells of a change."""
        self._bell.clear()
        around, config, plan = self._around, self._around.config, self._plan
        somebody = plan.tell(self._session, around.unit, config.max_partition_fetch_bytes)
        if plan.held_back:
            around.budget.ring(self._bell)
        if not somebody:
            return None
        wait = config.fetch_max_wait_ms
        if self.most_wait_ms is not None:
            wait = min(wait, self.most_wait_ms)
        if plan.somebody_reads or around.expecting():
            wait = min(wait, _SHORT_WAIT_MS)
        budget = around.budget
        most = min(config.fetch_max_bytes, around.share, budget.free)
        message = self._session.request(
            config,
            connection.versions,
            max_wait_ms=wait,
            max_bytes=most,
            rack=self._rack(),
        )
        answer = connection.send_raw(message, at_once=self._land_if_small)
        budget.take(most)
        self._under_way = _InFlightFetch(most, asyncio.get_running_loop().time() + wait / 1000)
        return answer

    def _rack(self) -> str:
        """Who tells its rack may be sent to the replica there: not if that has failed somebody."""
        rack = self._around.config.client_rack
        if rack:
            now = asyncio.get_running_loop().time()
            if any(now < cursor.shuns_replicas_until for cursor in self._plan.cursors):
                return ""
        return rack

    # --- answers ---------------------------------------------------------------------------------

    def _land_if_small(self, raw: RawResponse) -> None:
        """Who waited for so little has it in hand before the next request takes its time."""
        if len(raw.body) <= _SMALL:
            self._land(raw)

    def _land(self, raw: RawResponse) -> None:
        """Take an answer, and await nothing: what came is in its channel, the budget balances."""
        self._give_back()
        self.waiting_since = None
        self._around.brokers.trust(self.address)
        answer = self._session.understand(raw)
        if answer.throttle:
            self._rest = _FetchPause(answer.throttle, f"throttles us for {answer.throttle:g} s")
        self._take(answer)

    def _give_back(self) -> None:
        if self._under_way is not None:
            self._around.budget.give_back(self._under_way.reserved)
            self._under_way = None

    def _take(self, answer: FetchResponse) -> None:
        """Hand out what came. Nothing is awaited here: what was taken is in its channel."""
        asked = self._plan.asked
        untried, self._untried = (
            self._untried,
            {one: None for one in self._untried if one.partition not in asked},
        )
        alone = sum(1 for part in answer.parts if part.data) == 1
        for part in answer.parts:
            cursor = self._plan.asks_for(part.partition)
            if cursor is None or cursor.channel.closed:
                continue  # it was taken away since: somebody else may be reading it by now
            if part.error is not None:
                self._report(Refusal(cursor, 0, part.error, _leader(part, answer)))
            elif part.diverging is not None:
                self._report(Divergence(cursor, 0, *part.diverging))
            elif part.preferred_replica >= 0:
                self._report(Redirect(cursor, 0, part.preferred_replica))
            else:
                self._accept(cursor, part, alone=alone)
        for cursor in untried:
            if cursor.fetcher is self and cursor.partition in asked:
                cursor.clear_error()

    def _accept(self, cursor: Cursor, part: PartitionResponse, *, alone: bool) -> None:
        cursor.set_log_end(part.high_watermark, part.last_stable_offset)
        if not part.data:
            return
        end, epoch = part.end
        if end <= cursor.offset:
            self._report(Refusal(cursor, 0, part.fault(self._around.config)))
            return
        if not alone:
            # its bytes would keep all of the frame in memory, with those of others: copied out, it
            # keeps what it is charged for; into memory that is still warm, or that would cost more
            room = memoryview(decoding.room_for(len(part.data)))
            room[:] = part.data
            part = part._replace(data=room)
        records = part.records(self._around.config, cursor.end, self._around.budget.bodies)
        if cursor.end is not None:  # what came from there on is not handed out, nor done with
            end = min(end, cursor.end)
        size = len(part.data)
        chunk = Chunk(cursor.partition, part.offset, end, cursor.epoch, epoch, size, records)
        cursor.advance(end, epoch)
        self._around.budget.take(size)
        cursor.channel.push(chunk)
        self._plan.changed(cursor)
        if cursor.finished:
            self._report(Finish(cursor, 0))

    # --- trouble ---------------------------------------------------------------------------------

    def _report(self, report: Report) -> None:
        """Let go of a cursor, and say why."""
        self.remove(report.cursor)
        self._around.reports.put_nowait(report._replace(version=report.cursor.version))

    def _refuse_all(self, error: ConsumerError) -> None:
        for cursor in self.cursors:
            self._report(Refusal(cursor, 0, error))


class ExpressFetcher(Fetcher):
    """Fetches for cursors that came while the usual fetcher waits at the broker for others.

    A broker answers the requests of one connection in order: after a seek nobody should wait for
    the end of a poll. The usual fetcher takes them back when its poll is over.
    """

    most_wait_ms = _SHORT_WAIT_MS


def _leader(part: PartitionResponse, answer: FetchResponse) -> ReplicaPlacement | None:
    """The leader that a refusal names (KIP-951)."""
    if part.current_leader is None:
        return None
    node_id, epoch = part.current_leader
    address = answer.nodes.get(node_id)
    return None if address is None else ReplicaPlacement(node_id, address, epoch)
