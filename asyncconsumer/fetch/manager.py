"""The fetch manager: reads the requested partitions into their channels."""

import asyncio
import weakref
from collections import defaultdict
from collections.abc import Mapping
from random import Random
from types import TracebackType
from typing import Final, NamedTuple, Self
from uuid import UUID

from asyncconsumer.aio.scope import Scope
from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.errors import ConsumerError
from asyncconsumer.events import EventBus, Stalled
from asyncconsumer.fetch.cursor import Cursor, FetchTarget
from asyncconsumer.fetch.fetcher import FetcherContext, Finish
from asyncconsumer.fetch.leader_finder import LeaderFinder
from asyncconsumer.fetch.liveness import Liveness
from asyncconsumer.fetch.placement import PartitionPlacer
from asyncconsumer.fetch.pool import FetcherPool
from asyncconsumer.fetch.stalls import Stalls, suspects
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.pool import BrokerPool
from asyncconsumer.types import TopicPartition

_SECONDS_BETWEEN_LOOKS: Final = 0.5


class Progress(NamedTuple):
    """The fetch progress of a partition."""

    fetched: int  # next offset to fetch; EARLIEST or LATEST until it is looked up
    high_watermark: int  # last known high watermark, or -1
    node_id: int | None  # the broker that it is read from; None while there is none
    trouble: ConsumerError | None  # the last error, if any
    begun: int | None  # first offset read since the start or the last jump, if known
    topic_id: UUID | None  # None until it is known, and always before Kafka 2.8
    last_stable_offset: int = -1  # last known last stable offset, or -1
    last_fetch: float | None = None  # seconds since the broker's last fetch response, or None


class FetchManager:
    """The manager of all fetches of one consumer, within its ``async with`` block.

    `reconcile` sets the partitions to read. All decisions are made synchronously, here and in
    `PartitionPlacer`. Coroutines only send requests to brokers and bring back responses.
    """

    def __init__(
        self,
        brokers: BrokerPool,
        cluster: Cluster,
        fetch: FetchConfig,
        config: EngineConfig,
        *,
        randomness: Random,
    ) -> None:
        self.events = EventBus()
        self.budget = Budget(config.max_buffered_bytes)
        self._cursors: dict[TopicPartition, Cursor] = {}
        # Partitions by channel, without those that reached their end. A scan of all cursors would
        # be too slow.
        self._unfinished: defaultdict[Channel, set[TopicPartition]] = defaultdict(set)
        self._last_ends: dict[TopicPartition, int] = {}  # of partitions that are no longer read
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._scope = Scope("fetch manager")
        self._finder = LeaderFinder(cluster, config.refresh_leader_backoff_ms, randomness)
        self._around = FetcherContext(
            brokers=brokers,
            budget=self.budget,
            config=fetch,
            reports=asyncio.Queue(),
            expecting=self._expecting,
            fetchers=lambda: len(self._pool),
            take_back=lambda fetcher: self._pool.take_back(fetcher),
        )
        self._pool = FetcherPool(self._around, config.num_consumer_fetchers, self._scope)
        self._placing = PartitionPlacer(
            self._around, config, self._pool, self._finder, self.events, self._scope
        )
        self.vitals = Liveness(Stalls(config.stall_timeout_ms / 1000))

    def _expecting(self) -> bool:
        """Return whether a partition may be placed at any moment.

        Partitions that have had errors for 5 s do not count.
        """
        now = asyncio.get_running_loop().time()
        return any(
            one.troubled_since is None or now - one.troubled_since < 5
            for one in self._finder.unplaced.values()
        )

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._scope.start(self._place(), "place partitions")
        self._scope.start(self._hear_reports(), "hear fetchers")
        self._scope.start(self._keep_watch(), "watch fetchers")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._scope.is_open:
            self.reconcile({})
        self._pool.close()
        for channel in self._channels:
            channel.close()  # readers that wait reach the end
        self.events.end()
        await self._scope.__aexit__(kind, error, where)

    def channel(self) -> Channel:
        """Return a new channel that shares the budget."""
        channel = Channel(self.budget)
        self._channels.add(channel)
        return channel

    def reconcile(self, wanted: Mapping[TopicPartition, FetchTarget]) -> None:
        """Read exactly the given partitions from now on.

        A partition that is already read into the same channel and in the same epoch is not
        disturbed. After this call nothing is delivered of partitions that are not in `wanted`.
        """
        self._scope.check_open()
        for cursor in [one for tp, one in self._cursors.items() if tp not in wanted]:
            self._drop(cursor)
        self.change(wanted)

    def change(self, wanted: Mapping[TopicPartition, FetchTarget]) -> None:
        """Add or change the given partitions; all others are read as before."""
        self._scope.check_open()
        new: list[Cursor] = []
        for partition, want in wanted.items():
            there = self._cursors.get(partition)
            if there is not None and (
                want.epoch != there.epoch or want.channel is not there.channel
            ):
                self._drop(there)
                there = None
            if there is None:
                there = self._cursors[partition] = Cursor.of(partition, want)
                # a broker does not resend an unchanged high watermark within a fetch session
                there.set_log_end(self._last_ends.pop(partition, -1))
                if not there.finished:
                    self._unfinished[want.channel].add(partition)
                    self._finder.add(there)
                    new.append(there)
            if want.paused != there.paused:
                self._pause(there, paused=want.paused)
        for channel in {cursor.channel for cursor in new}:
            channel.reopen()
        self._placing.place_known(new)
        for channel in {want.channel for want in wanted.values() if want.end is not None}:
            self._close_finished(channel)  # some may be finished from the start

    def _drop(self, cursor: Cursor) -> None:
        partition = cursor.partition
        del self._cursors[partition]
        self._mark_finished(cursor)
        self._last_ends[partition] = cursor.high_watermark
        self._placing.take_away(cursor)
        cursor.channel.drop(partition)
        cursor.channel.reopen()  # the partition may be added again

    def _mark_finished(self, cursor: Cursor) -> None:
        """Note that nothing more will be fetched for a cursor."""
        unfinished = self._unfinished[cursor.channel]
        unfinished.discard(cursor.partition)
        if not unfinished:
            del self._unfinished[cursor.channel]

    def progress(self) -> dict[TopicPartition, Progress]:
        """Return the progress of each partition that is read."""
        return {one: self._progress(cursor) for one, cursor in self._cursors.items()}

    def _progress(self, cursor: Cursor) -> Progress:
        fetcher = cursor.fetcher
        answer = None if fetcher is None else fetcher.last_answer(cursor)
        return Progress(
            cursor.offset,
            cursor.high_watermark,
            None if fetcher is None else fetcher.node_id,
            cursor.trouble,
            cursor.begun,
            cursor.topic_id,
            cursor.last_stable_offset,
            None if answer is None else asyncio.get_running_loop().time() - answer,
        )

    def begun(self) -> dict[TopicPartition, int]:
        """Return the first offset read of each partition, if known.

        After a jump, this is the offset that reading continued at.
        """
        return {
            one: cursor.begun for one, cursor in self._cursors.items() if cursor.begun is not None
        }

    def begun_at(self, partition: TopicPartition) -> int | None:
        """Return the first offset read of one partition, as in `begun`, or None."""
        cursor = self._cursors.get(partition)
        return None if cursor is None else cursor.begun

    def stalled(self) -> Mapping[TopicPartition, Stalled]:
        """Return the partitions that should make progress and do not, with the reason."""
        return self.vitals.stalls.now

    @property
    def last_heard(self) -> float:
        """Return the loop time at which a broker last sent response data."""
        return self._pool.last_heard

    def _pause(self, cursor: Cursor, *, paused: bool) -> None:
        if paused:
            cursor.channel.hold(cursor.partition)
        else:
            cursor.channel.release(cursor.partition)
        self._pool.pause(cursor, paused=paused)

    # --- background tasks ------------------------------------------------------------------------

    async def _place(self) -> None:
        async for answer in self._finder.answers():
            if isinstance(answer, ConsumerError):
                self._placing.on_metadata_error(answer)
            else:
                self._placing.on_metadata(answer, list(self._cursors.values()))

    async def _hear_reports(self) -> None:
        while True:
            report = await self._around.reports.get()
            self._placing.on_report(report)
            cursor = report.cursor
            if isinstance(report, Finish) and self._cursors.get(cursor.partition) is cursor:
                self._mark_finished(cursor)
                self._close_finished(cursor.channel)

    def _close_finished(self, channel: Channel) -> None:
        """Finish a channel when all its partitions have reached their ends.

        When all partitions of the manager have, all channels finish, including those without
        partitions.
        """
        if channel not in self._unfinished:
            channel.finish()
        if not self._unfinished:
            for each in self._channels:
                each.finish()

    async def _keep_watch(self) -> None:
        """Check periodically for late brokers, idle fetchers and stalled partitions."""
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            late = list(self._pool.late())
            now = asyncio.get_running_loop().time()
            asked = {fetcher.address for fetcher in self._pool if fetcher.cursors}
            self.vitals.look(self._channels, asked, {fetcher.address for fetcher in late}, now)
            for fetcher in late:
                self._finder.doubt(cursor.partition.topic for cursor in fetcher.cursors)
            self._finder.doubt(
                one.topic
                for one, cursor in self._cursors.items()
                if cursor.replica is not None and cursor.leader_is_due(now)
            )
            self._pool.close_idle()
            stalls = self.vitals.stalls
            for event in stalls.look(suspects(self._cursors.values(), late, stalls.now), now):
                self.events.publish(event)
