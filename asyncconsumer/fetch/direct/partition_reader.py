"""A reader of one partition without a group, in order, with one fetch request ahead."""

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
_SILENT_SECONDS: Final = 5.0  # beyond the requested wait, until the connection is closed
# attempts when the broker reports corrupt records, `_STRIKE_SECONDS` apart
_MOST_STRIKES: Final = 3
_STRIKE_SECONDS: Final = 0.5
_ENOUGH_NOTHING: Final = 3  # empty responses before the end, until the log end is checked


class SkippedRange(NamedTuple):
    """Offsets that could not be read: from `start` up to, not including, `stop`.

    If `stop` is smaller than `start`, reading went back because the log ends before `start`.
    """

    partition: TopicPartition
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """The handling of missing offsets, and the runtime options of a reader."""

    # "none" raises `OffsetUnavailable`; "earliest" and "latest" reset the position
    auto_offset_reset: str = "none"
    on_skip: Callable[[SkippedRange], None] | None = None
    end_was_there: bool = False  # the end existed when reading began, so it is not waited for
    alone: bool = False  # the reader is the only task of its event loop
    bodies: BodyCache | None = None  # decompressed bodies are charged to it


class _InFlight(NamedTuple):
    """A fetch in flight."""

    ask: PartitionFetch
    answer: asyncio.Future[RawResponse]
    connection: BrokerConnection
    throttle: float = 0.0  # throttle time of the previous response, in seconds


class _ErrorTracker:
    """The errors of a partition, which are retried up to a limit and then raised."""

    def __init__(self, partition: TopicPartition, leaders: LeaderClient) -> None:
        self._partition = partition
        self._leaders = leaders
        self._patience: RetryDeadline | None = None
        self._strikes = 0  # corrupt records reported by the broker in a row

    def all_is_well(self) -> None:
        """Reset the retries after a successful response."""
        self._patience, self._strikes = None, 0

    async def bear(self, error: ConsumerError, position: int) -> None:
        """Wait before the next attempt, or raise the error."""
        if isinstance(error, CorruptMessage):  # another replica may become the leader
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
    """A reader of a partition from `position` on, up to `end` if set.

    Leader changes, lost connections and broker restarts are retried for as long as the patience of
    `leaders` allows. Permanent errors are raised.
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
        self._topic_id: UUID | None = None  # id of the topic when it was first read
        self._nearby = PreferredReplica(config.client_rack)

    async def next(self) -> decoding.Records | None:
        """Return the next records, or None at the end. The next fetch is then in flight.

        Cancelling the call loses nothing.
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
        """End reading. A waiting caller gets the end with the next response or error."""
        self._end = self.position

    async def _check_end(self) -> None:
        """Raise `OffsetUnavailable` if the log no longer reaches the end offset.

        A truncated log may never reach it again, and no fetch response reports that.
        """
        if self._end is None or not self._policy.end_was_there:
            return
        if not 0 <= self.high_watermark < self._end:
            return
        earliest, latest = await self._ends()
        if latest < self._end:
            raise OffsetUnavailable(*self.partition, self._end, earliest, latest)

    async def ask_ahead(self) -> None:
        """Send the first fetch before `next` is called. `next` handles errors."""
        with contextlib.suppress(ConsumerError):
            self._flight = self._flight or await self._send()

    async def _fetch(self) -> PartitionResponse | None:
        """Return one response, or None if it has no records."""
        flight = self._flight = self._flight or await self._send()
        if self._policy.alone:
            flight.connection.receive(flight.answer)
        elif flight.answer.done():
            await asyncio.sleep(0)  # data that arrives continuously must not starve other tasks
        if not flight.answer.done():
            await self._arrival(flight)
        self._flight = None  # nothing is awaited from here on, so no data is lost
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
            return None  # an empty response is valid
        self.position = end
        self._send_ahead(flight, fetched.throttle)
        return fetched

    async def _arrival(self, flight: _InFlight) -> None:
        """Wait for the response. Close the connection if the broker is silent.

        Another broker may be the leader by then.
        """
        allowed = self._config.fetch_max_wait_ms / 1000 + _SILENT_SECONDS + flight.throttle
        connection, began = flight.connection, _now()
        while True:
            # unlike `await`, a cancellation does not cancel the future
            done, _ = await asyncio.wait((flight.answer,), timeout=allowed)
            if done:
                return
            silent = _now() - max(connection.last_heard, began)
            if silent >= allowed - 0.001:  # tolerance for timer rounding
                self._leaders.suspect(connection.address)
                reason = f"not a byte for {silent:.1f} s"
                connection.close(ConnectionLost(connection.address, reason))

    async def _send(self) -> _InFlight:
        connection, place = await self._connect()
        size = self._config.max_partition_fetch_bytes
        ask = PartitionFetch(self.position, size, place.leader_epoch, place.topic_id)
        return _InFlight(ask, connection.send_raw(self._request(ask)), connection)

    async def _connect(self) -> tuple[BrokerConnection, LeaderInfo]:
        """Return a connection to the leader or the preferred replica, and the leader."""
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
            if near is None:  # unknown broker: refresh metadata before the next redirect
                self._leaders.doubt(self.partition)
                self._nearby.leave()
            connection = near or connection
        return connection, place

    def _request(self, ask: PartitionFetch) -> FetchRequest:
        return request({self.partition: ask}, self._config, rack=self._nearby.rack)

    def _send_ahead(self, last: _InFlight, throttle: float) -> None:
        """Send the next fetch before the records are used, if the connection is usable."""
        at_end = self._end is not None and self.position >= self._end
        if at_end or self._nearby.is_over or not last.connection.usable:
            return
        ask = last.ask._replace(offset=self.position)
        answer = last.connection.send_raw(self._request(ask))
        self._flight = _InFlight(ask, answer, last.connection, throttle)

    async def _suffer(self, error: ConsumerError) -> None:
        """Handle an error so that the fetch can be retried, or raise it."""
        self._leaders.doubt(self.partition)
        at_replica = self._nearby.leave()
        if isinstance(error, TopicRecreated):
            await self._start_anew(error)
            return
        if isinstance(error, OffsetOutOfRange):
            if not at_replica and await self._relocate():
                return
            error = LeaderNotAvailable(error.about)  # brokers disagree about the log end
        await self._endurance.bear(error, self.position)

    async def _start_anew(self, error: TopicRecreated) -> None:
        """Apply `auto_offset_reset` to a re-created topic, or raise the error."""
        if self._policy.auto_offset_reset == "none" or self._end is not None:
            raise error
        earliest, latest = await self._ends()
        self._topic_id = None
        self._move(earliest, latest)

    async def _relocate(self) -> bool:
        """Apply `auto_offset_reset` if the position is out of range.

        Return False if the log contains the position. Raise `OffsetUnavailable` if the policy is
        "none".
        """
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
