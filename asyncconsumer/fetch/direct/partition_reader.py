"""One partition read in order, without a group, one answer ahead of its user."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import (
    ConnectionLost,
    ConsumerError,
    CorruptMessage,
    CorruptRecords,
    LeaderNotAvailable,
    OffsetOutOfRange,
    OffsetUnavailable,
    TopicRecreated,
)
from asyncconsumer.fetch.direct.preferred_replica import PreferredReplica
from asyncconsumer.fetch.fetch_request import PartitionFetch, PartitionResponse, request, understand
from asyncconsumer.fetch.leader_client import LeaderClient, LeaderInfo
from asyncconsumer.fetch.offset_lookup import list_offset
from asyncconsumer.net.connection import BrokerConnection, RawResponse
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.messages import EARLIEST, LATEST, FetchRequest
from asyncconsumer.records import decoding
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from asyncconsumer.aio.retry_deadline import RetryDeadline

_log: Final = logging.getLogger(__name__)
_SILENT_SECONDS: Final = 5.0  # beyond the wait that was asked for, until a connection is given up
_MOST_STRIKES: Final = 3  # tries of a broker that reads damage, and the time between them
_STRIKE_SECONDS: Final = 0.5
_ENOUGH_NOTHING: Final = 3  # empty answers in a row, before an end: then it may be there no more


class SkippedRange(NamedTuple):
    """Offsets that were not there to be read: from `start` up to, not including, `stop`.

    When `stop` is the smaller one, reading went back: the log ends before where it was to go on.
    """

    partition: TopicPartition
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """What to do about an offset that is not there, whom to tell, and who else is there."""

    auto_offset_reset: str = "none"  # raise OffsetNotThere; or go to "earliest" or "latest"
    on_skip: Callable[[SkippedRange], None] | None = None
    end_was_there: bool = False  # when reading began, so that it is not waited for
    alone: bool = False  # on its event loop: nobody else is kept waiting
    bodies: BodyCache | None = None  # what is decompressed is charged to it


class _InFlight(NamedTuple):
    """A fetch on its way."""

    ask: PartitionFetch
    answer: asyncio.Future[RawResponse]
    connection: BrokerConnection
    throttle: float = 0.0  # seconds that the broker said it would be silent


class _ErrorTracker:
    """How much goes wrong with a partition before it is raised."""

    def __init__(self, partition: TopicPartition, leaders: LeaderClient) -> None:
        self._partition = partition
        self._leaders = leaders
        self._patience: RetryDeadline | None = None
        self._strikes = 0  # damage found by the broker itself

    def all_is_well(self) -> None:
        """A broker answered as it should."""
        self._patience, self._strikes = None, 0

    async def bear(self, error: ConsumerError, position: int) -> None:
        """Wait before the next try, or raise the error."""
        if isinstance(error, CorruptMessage):  # another may lead soon, or it stays so
            self._strikes += 1
            if self._strikes >= _MOST_STRIKES:
                reason = "the broker itself reads damaged records there"
                raise CorruptRecords(*self._partition, position, reason) from error
            await asyncio.sleep(_STRIKE_SECONDS)
            return
        if self._patience is None:
            self._patience = self._leaders.patience()
        await self._patience.bear(error)


class PartitionReader:
    """Reads a partition from `position` on, to `end` if there is one.

    Leader changes, lost connections and restarts of brokers are lived through, as long as they do
    not last longer than the patience of `leaders`; what nobody can live through is raised.
    """

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        leaders: LeaderClient,
        config: FetchConfig,
        *,
        policy: ReadPolicy | None = None,
        end: int | None = None,
        lane: int = 0,
    ) -> None:
        self.partition = partition
        self.position = position
        self.high_watermark = -1
        self._end = end
        self._lane = lane
        self._leaders = leaders
        self._config = config
        self._policy = policy or ReadPolicy()
        self._flight: _InFlight | None = None
        self._endurance = _ErrorTracker(partition, leaders)
        self._topic_id: UUID | None = None  # of the topic as it was first seen
        self._nearby = PreferredReplica(config.client_rack)

    async def next(self) -> decoding.Records | None:
        """The next records, with the fetch after them on its way; None at the end.

        Cancelling it loses nothing.
        """
        empty = 0
        while self._end is None or self.position < self._end:
            try:
                fetched = await self._fetch()
            except ConsumerError as error:
                await self._suffer(error)
                continue
            self._endurance.all_is_well()
            if fetched is not None:
                return fetched.records(self._config, self._end, self._policy.bodies)
            empty += 1
            if empty % _ENOUGH_NOTHING == 0:
                await self._check_end()
        return None

    def close(self) -> None:
        """Be at the end: whoever waits for more finds out with the next answer, or error."""
        self._end = self.position

    async def _check_end(self) -> None:
        """A log that lost its tail may never come to the end that it had: no broker tells that."""
        if self._end is None or not self._policy.end_was_there:
            return
        if not 0 <= self.high_watermark < self._end:
            return
        earliest, latest = await self._ends()
        if latest < self._end:
            raise OffsetUnavailable(*self.partition, self._end, earliest, latest)

    async def ask_ahead(self) -> None:
        """Have the first fetch on its way before `next` wants it, which sees to what fails now."""
        with contextlib.suppress(ConsumerError):
            self._flight = self._flight or await self._send()

    async def _fetch(self) -> PartitionResponse | None:
        """One answer; None if it brought nothing to read."""
        flight = self._flight = self._flight or await self._send()
        if self._policy.alone:
            flight.connection.receive(flight.answer)
        elif flight.answer.done():
            await asyncio.sleep(0)  # data that keeps coming must not starve the other tasks
        if not flight.answer.done():
            await self._arrival(flight)
        self._flight = None  # from here on nothing is awaited: what came is handed out
        (fetched,) = understand(
            flight.answer.result(), {self.partition: flight.ask}, self._config.fetch_max_bytes
        )
        if fetched.error is not None:
            raise fetched.error
        self.high_watermark = fetched.high_watermark
        end = fetched.end_offset
        if fetched.preferred_replica >= 0:
            self._nearby.follow(fetched.preferred_replica)
            return None
        if end <= self.position:
            if fetched.data:
                raise fetched.fault(self._config)
            await asyncio.sleep(fetched.throttle)
            return None  # nothing came, which is fine
        self.position = end
        self._send_ahead(flight, fetched.throttle)
        return fetched

    async def _arrival(self, flight: _InFlight) -> None:
        """Wait for an answer. A broker that is silent is given up: another may lead by now."""
        allowed = self._config.fetch_max_wait_ms / 1000 + _SILENT_SECONDS + flight.throttle
        connection, began = flight.connection, _now()
        while True:
            # unlike awaiting it: a cancellation leaves it alone
            done, _ = await asyncio.wait((flight.answer,), timeout=allowed)
            if done:
                return
            silent = _now() - max(connection.last_heard, began)
            if silent >= allowed - 0.001:  # clocks and timers round
                self._leaders.suspect(connection.address)
                reason = f"not a byte for {silent:.1f} s"
                connection.close(ConnectionLost(connection.address, reason))

    async def _send(self) -> _InFlight:
        connection, place = await self._connect()
        size = self._config.max_partition_fetch_bytes
        ask = PartitionFetch(self.position, size, place.leader_epoch, place.topic_id)
        return _InFlight(ask, connection.send_raw(self._request(ask)), connection)

    async def _connect(self) -> tuple[BrokerConnection, LeaderInfo]:
        """A connection to the leader, or to the replica that it sent us to, and the place."""
        connection, place = await self._leaders.connect(
            self.partition, Traffic.FETCH, lane=self._lane
        )
        self._topic_id = self._topic_id or place.topic_id
        if place.topic_id != self._topic_id:
            raise TopicRecreated(*self.partition, self.position)
        if self._nearby.is_over:
            self._nearby.ask_again()
        if (node_id := self._nearby.node_id) is not None:
            near = await self._leaders.connect_to(node_id, Traffic.FETCH, lane=self._lane)
            if near is None:  # it is new: to be known when it is named again
                self._leaders.doubt(self.partition)
                self._nearby.leave()
            connection = near or connection
        return connection, place

    def _request(self, ask: PartitionFetch) -> FetchRequest:
        return request({self.partition: ask}, self._config, rack=self._nearby.rack)

    def _send_ahead(self, last: _InFlight, throttle: float) -> None:
        """Ask for what comes next before this is used, if the connection is still there."""
        at_end = self._end is not None and self.position >= self._end
        if at_end or self._nearby.is_over or not last.connection.usable:
            return
        ask = last.ask._replace(offset=self.position)
        answer = last.connection.send_raw(self._request(ask))
        self._flight = _InFlight(ask, answer, last.connection, throttle)

    async def _suffer(self, error: ConsumerError) -> None:
        """Do what helps against an error, or raise it."""
        self._leaders.doubt(self.partition)
        at_replica = self._nearby.leave()
        if isinstance(error, TopicRecreated):
            await self._start_anew(error)
            return
        if isinstance(error, OffsetOutOfRange):
            if not at_replica and await self._relocate():
                return
            error = LeaderNotAvailable(error.about)  # brokers disagree about where the log ends
        await self._endurance.bear(error, self.position)

    async def _start_anew(self, error: TopicRecreated) -> None:
        """It is another topic of the same name: raise, or go where the policy says, and tell."""
        if self._policy.auto_offset_reset == "none" or self._end is not None:
            raise error
        earliest, latest = await self._ends()
        self._topic_id = None
        self._move(earliest, latest)

    async def _relocate(self) -> bool:
        """The position is not in the log: raise, or go where the policy says; False if it is."""
        earliest, latest = await self._ends()
        if earliest <= self.position <= latest:
            return False
        if self._policy.auto_offset_reset == "none":
            raise OffsetUnavailable(*self.partition, self.position, earliest, latest)
        self._move(earliest, latest)
        return True

    async def _ends(self) -> tuple[int, int]:
        earliest = await list_offset(self._leaders, self.partition, EARLIEST)
        latest = await list_offset(self._leaders, self.partition, LATEST)
        return earliest.offset, latest.offset

    def _move(self, earliest: int, latest: int) -> None:
        target = earliest if self._policy.auto_offset_reset == "earliest" else latest
        skipped = SkippedRange(self.partition, self.position, target)
        _log.warning(
            "%s has no offset %d (it has %d to %d): reading on at %d, the %s",
            *(self.partition, self.position, earliest, latest, target),
            self._policy.auto_offset_reset,
        )
        self.position = target
        if self._policy.on_skip is not None:
            self._policy.on_skip(skipped)


def _now() -> float:
    return asyncio.get_running_loop().time()
