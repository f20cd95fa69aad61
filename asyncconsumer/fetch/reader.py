"""One partition read in order, without a group, one answer ahead of its user."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import (
    ConsumerError,
    CorruptMessage,
    CorruptRecords,
    OffsetNotThere,
    OffsetOutOfRange,
)
from asyncconsumer.fetch.ask import Ask, Fetched, request, understand
from asyncconsumer.fetch.leader import Leaders
from asyncconsumer.fetch.lookup import list_offset
from asyncconsumer.model import TopicPartition
from asyncconsumer.net.brokers import Traffic
from asyncconsumer.net.connection import Connection, RawAnswer
from asyncconsumer.wire import accel
from asyncconsumer.wire.messages import EARLIEST, LATEST

if TYPE_CHECKING:
    from asyncconsumer.net.patience import Patience

_log: Final = logging.getLogger(__name__)


class Skipped(NamedTuple):
    """Offsets that were not there to be read: from `start` up to, not including, `stop`.

    When `stop` is the smaller one, reading went back: the log ends before where it was to go on.
    """

    partition: TopicPartition
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """What to do about an offset that is not there, and whom to tell."""

    auto_offset_reset: str = "none"  # raise OffsetNotThere; or go to "earliest" or "latest"
    on_skip: Callable[[Skipped], None] | None = None


class _Flight(NamedTuple):
    """A fetch on its way."""

    ask: Ask
    answer: asyncio.Future[RawAnswer]
    connection: Connection


class PartitionReader:
    """Reads a partition from `position` on, to `end` if there is one.

    Leader changes, lost connections and restarts of brokers are lived through, as long as they do
    not last longer than the patience of `leaders`; what nobody can live through is raised.
    """

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        leaders: Leaders,
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
        self._flight: _Flight | None = None
        self._patience: Patience | None = None

    async def next(self) -> accel.Records | None:
        """The next records, with the fetch after them on its way; None at the end.

        Cancelling it loses nothing.
        """
        while self._end is None or self.position < self._end:
            try:
                fetched = await self._fetch()
            except ConsumerError as error:
                await self._suffer(error)
                continue
            self._patience = None
            if fetched is not None:
                return fetched.records(self._config, end=self._end)
        return None

    async def _fetch(self) -> Fetched | None:
        """One answer; None if it brought nothing to read."""
        flight = self._flight = self._flight or await self._send()
        if flight.answer.done():
            await asyncio.sleep(0)  # data that keeps coming must not starve the other tasks
        await asyncio.wait((flight.answer,))  # unlike awaiting it: a cancellation leaves it alone
        self._flight = None  # from here on nothing is awaited: what came is handed out
        (fetched,) = understand(flight.answer.result(), {self.partition: flight.ask})
        if fetched.error is not None:
            raise fetched.error
        self.high_watermark = fetched.high_watermark
        end = fetched.end_offset
        if end == self.position:
            self._check_nothing(fetched)
            return None
        self.position = end
        self._send_ahead(flight)
        return fetched

    async def _send(self) -> _Flight:
        connection, place = await self._leaders.connect(
            self.partition, Traffic.FETCH, lane=self._lane
        )
        size = self._config.max_partition_fetch_bytes
        ask = Ask(self.position, size, place.leader_epoch, place.topic_id)
        message = request({self.partition: ask}, self._config)
        return _Flight(ask, connection.send_raw(message), connection)

    def _send_ahead(self, last: _Flight) -> None:
        """Ask for what comes next before this is used, if the connection is still there."""
        at_end = self._end is not None and self.position >= self._end
        if at_end or not last.connection.usable:
            return
        ask = last.ask._replace(offset=self.position)
        answer = last.connection.send_raw(request({self.partition: ask}, self._config))
        self._flight = _Flight(ask, answer, last.connection)

    def _check_nothing(self, fetched: Fetched) -> None:
        """Nothing came, which is fine; or something that is not a whole batch, which is not."""
        records = fetched.records(self._config)
        for _ in records:
            pass  # raises what is wrong with it
        if records.incomplete:
            reason = f"a batch of {records.incomplete} bytes, of which {records.size} ever come"
            raise CorruptRecords(*self.partition, self.position, reason)

    async def _suffer(self, error: ConsumerError) -> None:
        """Do what helps against an error, or raise it."""
        self._leaders.doubt(self.partition)
        if isinstance(error, OffsetOutOfRange):
            await self._relocate()
            return
        if self._patience is None:
            self._patience = self._leaders.patience()
        try:
            await self._patience.bear(error)
        except CorruptMessage as damage:
            reason = "the broker itself reads damaged records there"
            raise CorruptRecords(*self.partition, self.position, reason) from damage

    async def _relocate(self) -> None:
        """The position is not in the log: raise, or go where the policy says, and tell."""
        earliest = (await list_offset(self._leaders, self.partition, EARLIEST)).offset
        latest = (await list_offset(self._leaders, self.partition, LATEST)).offset
        if earliest <= self.position <= latest:
            return  # it is, by now
        if self._policy.auto_offset_reset == "none":
            raise OffsetNotThere(*self.partition, self.position, earliest, latest)
        target = earliest if self._policy.auto_offset_reset == "earliest" else latest
        skipped = Skipped(self.partition, self.position, target)
        _log.warning(
            "%s has no offset %d (it has %d to %d): reading on at %d, the %s",
            *(self.partition, self.position, earliest, latest, target),
            self._policy.auto_offset_reset,
        )
        self.position = target
        if self._policy.on_skip is not None:
            self._policy.on_skip(skipped)
