"""A reader of one partition without a group. It sends each fetch before its records are needed."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncconsumer.aio.clock import loop_time
from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import (
    ConsumerError,
    CorruptMessage,
    CorruptRecords,
    LeaderNotAvailable,
    OffsetOutOfRange,
    OffsetUnavailable,
    TopicRecreated,
)
from asyncconsumer.events import Skipped
from asyncconsumer.fetch.fetch_request import (
    PartitionFetch,
    PartitionResponse,
    build_request,
    parse_response,
)
from asyncconsumer.fetch.leader_client import LeaderClient, LeaderInfo
from asyncconsumer.fetch.list_offsets import list_log_ends
from asyncconsumer.fetch.policy import (
    NO_ERRORS,
    NO_REPLICA,
    NO_TOPIC_IDS,
    LogEnds,
    OffsetReset,
    PreferredReplica,
)
from asyncconsumer.fetch.refetch import RefetchPolicy
from asyncconsumer.net.connection import BrokerConnection, RawResponse
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.messages import FetchRequest
from asyncconsumer.records import decoding
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.aio.retry_deadline import RetryDeadline

_log: Final = logging.getLogger(__name__)
_SILENT_SECONDS: Final = 5.0  # silence after the requested wait before the connection is closed
_CORRUPT_RETRY_SECONDS: Final = 0.5  # pause between fetches at an offset with corrupt records
_EMPTY_BEFORE_CHECK: Final = 3  # empty responses in a row after which the log end is checked


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """The options of a partition reader that are not part of `FetchConfig`."""

    # for a position that the log does not have: "none" raises `OffsetUnavailable`; "earliest" and
    # "latest" reset the position
    auto_offset_reset: str = "none"
    on_skip: Callable[[Skipped], None] | None = None
    end_existed: bool = False  # the end existed when reading began, so it is not waited for
    alone: bool = False  # the reader is the only task of its event loop
    bodies: BodyCache | None = None  # the cache to which decompressed bodies are charged

    @property
    def reset(self) -> OffsetReset:
        """The `OffsetReset` for the option `auto_offset_reset`."""
        return OffsetReset(self.auto_offset_reset)


class _InFlight(NamedTuple):
    """A fetch request in flight, with its connection."""

    fetch: PartitionFetch
    response: asyncio.Future[RawResponse]
    connection: BrokerConnection
    throttle: float = 0.0  # throttle time of the previous response, in seconds


class _ErrorTracker:
    """The errors of a partition since its last successful response.

    Retriable errors are retried until a deadline, corrupt responses a fixed number of times.
    """

    def __init__(self, tp: TopicPartition, leaders: LeaderClient) -> None:
        self._tp = tp
        self._leaders = leaders
        self._deadline: RetryDeadline | None = None
        self._errors = NO_ERRORS

    def clear(self) -> None:
        """Reset the retry deadline and the count of corrupt responses, after a success."""
        self._deadline, self._errors = None, NO_ERRORS

    async def wait_or_raise(self, error: ConsumerError, position: int) -> None:
        """Wait before the next attempt, or raise the error. `position` is the read position."""
        if isinstance(error, CorruptMessage | CorruptRecords):
            final = self._errors.final_corruption(self._tp, position, error)
            if final is not None:
                raise final from (None if final is error else error)
            self._errors = self._errors.add(error, loop_time())
            await asyncio.sleep(_CORRUPT_RETRY_SECONDS)
            return
        if self._deadline is None:
            self._deadline = self._leaders.retry_deadline()
        await self._deadline.wait_or_raise(error)


class PartitionReader:
    """A reader of a partition from the offset `position`, up to the offset `end` if it is set.

    Leader changes, lost connections and broker restarts are retried until the retry deadline of
    `leaders`. Permanent errors are raised.
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
        slot: int = 0,
    ) -> None:
        self.partition = partition
        self.position = position
        self.high_watermark = -1
        self._end = end
        self._slot = slot
        self._leaders = leaders
        self._config = config
        self._policy = policy or ReadPolicy()
        self._in_flight: _InFlight | None = None
        self._errors = _ErrorTracker(partition, leaders)
        self._topic_ids = NO_TOPIC_IDS
        self._replica = NO_REPLICA
        self._refetch = RefetchPolicy(lambda _: None, self._read_again)

    async def next(self) -> decoding.Records | None:
        """Return the next records, or None at the end offset. Send the next fetch before returning.

        Cancelling the call loses nothing.
        """
        empty = 0
        while self._end is None or self.position < self._end:
            try:
                response = await self._fetch()
            except ConsumerError as error:
                await self._on_error(error)
                continue
            self._errors.clear()
            if response is not None:
                return response.records(self._config, self._end, self._policy.bodies)
            empty += 1
            if empty % _EMPTY_BEFORE_CHECK == 0:
                await self._check_end()
        return None

    def recover(self, error: Exception) -> bool:
        """Set the position back to corrupt records, so that they are fetched again.

        `error` was raised when the records that `next` returned were decoded. Return False, and do
        nothing, for errors of other kinds and after 3 attempts.
        """
        return self._refetch.recover(error)

    def _read_again(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.position = offsets[self.partition]
        if self._in_flight is not None:
            self._in_flight.response.cancel()
            self._in_flight = None

    def close(self) -> None:
        """End reading. A caller that waits in `next` gets no more records."""
        self._end = self.position

    async def _check_end(self) -> None:
        """Raise `OffsetUnavailable` if the log ends before the end offset of this reader.

        A truncated log may never reach that offset again, and no fetch response reports this.
        """
        if self._end is None or not self._policy.end_existed:
            return
        if not 0 <= self.high_watermark < self._end:
            return
        ends = await self._log_ends()
        if ends.latest < self._end:
            raise OffsetUnavailable(*self.partition, self._end, *ends)

    async def fetch_ahead(self) -> None:
        """Send the first fetch before `next` is called.

        A failure is ignored, because `next` sends the fetch again.
        """
        with contextlib.suppress(ConsumerError):
            self._in_flight = self._in_flight or await self._send()

    async def _fetch(self) -> PartitionResponse | None:
        """Wait for one response and return it, or None if it has no records.

        Send a request first, if none is in flight. Raise the error of the partition, if there is
        one.
        """
        sent = self._in_flight = self._in_flight or await self._send()
        if self._policy.alone:
            sent.connection.receive(sent.response)
        elif sent.response.done():
            await asyncio.sleep(0)  # data that arrives continuously must not starve other tasks
        if not sent.response.done():
            await self._wait_response(sent)
        self._in_flight = None  # nothing is awaited from here on, so no data is lost
        (response,) = parse_response(
            sent.response.result(), {self.partition: sent.fetch}, self._config.fetch_max_bytes
        )
        if response.error is not None:
            raise response.error
        self.high_watermark = response.high_watermark
        end = response.end_offset
        if response.preferred_replica >= 0:
            self._replica = PreferredReplica.redirected(response.preferred_replica, loop_time())
            return None
        if end <= self.position:
            if response.data:
                raise response.decode_error(self._config)
            await asyncio.sleep(response.throttle)
            return None  # an empty response is valid
        self.position = end
        self._send_ahead(sent, response.throttle)
        return response

    async def _wait_response(self, sent: _InFlight) -> None:
        """Wait for the response to the fetch `sent`.

        If the broker sends nothing for too long, close the connection, which fails the response.
        The leader is then looked up again, because another broker may lead the partition by then.
        """
        allowed = self._config.fetch_max_wait_ms / 1000 + _SILENT_SECONDS + sent.throttle
        connection, began = sent.connection, loop_time()
        while True:
            # unlike `await`, a cancellation does not cancel the future
            done, _ = await asyncio.wait((sent.response,), timeout=allowed)
            if done:
                return
            silent = loop_time() - max(connection.last_received, began)
            if silent >= allowed - 0.001:  # tolerance for timer rounding
                self._leaders.mark_suspect(connection.address)
                connection.close_silent(silent)

    async def _send(self) -> _InFlight:
        connection, leader = await self._connect()
        size = self._config.max_partition_fetch_bytes
        fetch = PartitionFetch(self.position, size, leader.leader_epoch, leader.topic_id)
        return _InFlight(fetch, connection.send_raw(self._request(fetch)), connection)

    async def _connect(self) -> tuple[BrokerConnection, LeaderInfo]:
        """Return a connection to the leader or the preferred replica, and data about the leader.

        Raise `TopicRecreated` if the topic id has changed.
        """
        tp = self.partition
        connection, leader = await self._leaders.connect(tp, Traffic.FETCH, slot=self._slot)
        if self._topic_ids.is_recreated(tp, leader.topic_id):
            raise TopicRecreated(*tp, self.position)
        self._topic_ids = self._topic_ids._replace(current=leader.topic_id)
        if self._replica.is_expired(loop_time()):
            self._replica = NO_REPLICA
        if (node_id := self._replica.node_id) is not None:
            replica = await self._leaders.connect_to(node_id, Traffic.FETCH, slot=self._slot)
            if replica is None:  # unknown broker: refresh metadata before the next redirect
                self._leaders.mark_stale(tp)
                self._replica = self._replica.failed(loop_time())
            connection = replica or connection
        return connection, leader

    def _request(self, fetch: PartitionFetch) -> FetchRequest:
        rack = "" if self._replica.is_avoided(loop_time()) else self._config.client_rack
        return build_request({self.partition: fetch}, self._config, rack=rack)

    def _send_ahead(self, last: _InFlight, throttle: float) -> None:
        """Send the next fetch before the caller gets the records of the last one.

        Nothing is sent at the end offset, or if the connection cannot be used.
        """
        at_end = self._end is not None and self.position >= self._end
        if at_end or self._replica.is_expired(loop_time()) or not last.connection.usable:
            return
        fetch = last.fetch._replace(offset=self.position)
        response = last.connection.send_raw(self._request(fetch))
        self._in_flight = _InFlight(fetch, response, last.connection, throttle)

    async def _on_error(self, error: ConsumerError) -> None:
        """Handle an error so that the fetch can be retried. Raise the error if it is final."""
        self._leaders.mark_stale(self.partition)
        at_replica = self._replica.node_id is not None
        self._replica = self._replica.failed(loop_time())
        if isinstance(error, TopicRecreated):
            await self._restart(error)
            return
        if isinstance(error, OffsetOutOfRange):
            if not at_replica and await self._relocate():
                return
            error = LeaderNotAvailable(error.about)  # brokers disagree about the log end
        await self._errors.wait_or_raise(error, self.position)

    async def _restart(self, error: TopicRecreated) -> None:
        """Apply `auto_offset_reset` to a re-created topic.

        Raise `error` if the option is "none" or the reader has an end offset.
        """
        if self._policy.auto_offset_reset == "none" or self._end is not None:
            raise error
        ends = await self._log_ends()
        self._topic_ids = self._topic_ids.switch(None)
        self._move(self._policy.reset.choose(ends), ends)

    async def _relocate(self) -> bool:
        """Apply `auto_offset_reset` to a position that is out of range.

        Return False if the log has the position, so that nothing was done. Raise
        `OffsetUnavailable` if the option is "none".
        """
        ends = await self._log_ends()
        target = self._policy.reset.relocate(self.partition, self.position, ends)
        if target is None:
            return False
        self._move(target, ends)
        return True

    async def _log_ends(self) -> LogEnds:
        return await list_log_ends(self._leaders, self.partition)

    def _move(self, target: int, ends: LogEnds) -> None:
        skipped = Skipped(self.partition, self.position, target)
        _log.warning(
            "%s (the log has offsets %d to %d, `auto_offset_reset` is %s)",
            skipped,
            *ends,
            self._policy.auto_offset_reset,
        )
        self.position = target
        if self._policy.on_skip is not None:
            self._policy.on_skip(skipped)
