"""The fetch manager, which fetches partitions into channels, the buffers of streams."""

import asyncio
import weakref
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import takewhile
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from asyncconsumer.aio.clock import loop_time
from asyncconsumer.aio.resource import AsyncResource
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
from asyncconsumer.fetch.placement import PartitionPlacer, TargetOwner
from asyncconsumer.fetch.policy import NO_REPLICA
from asyncconsumer.fetch.pool import FetcherPool
from asyncconsumer.fetch.stalls import Stalls, suspects
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.pool import BrokerPool, ConnectionCounts
from asyncconsumer.types import TopicPartition

_CHECK_SECONDS: Final = 0.5  # seconds between periodic checks
_KEPT_SECONDS: Final = 600.0  # how long the log end of a partition that is not read is kept


class Progress(NamedTuple):
    """The fetch progress of one partition."""

    fetched: int  # next offset to fetch; EARLIEST or LATEST until it is looked up
    high_watermark: int  # last known high watermark, or -1
    node_id: int | None  # the broker that the partition is read from, or None
    error: ConsumerError | None  # the last error, if any
    start_offset: int | None  # first offset read since the start or the last jump, if known
    topic_id: UUID | None  # None while the id is unknown, and always before Kafka 2.8
    last_stable_offset: int = -1  # last known last stable offset, or -1
    last_fetch: float | None = None  # seconds since the broker's last fetch response, or None


class FetchManager(AsyncResource):
    """The manager of all fetches of one consumer, within its ``async with`` block.

    `reconcile` sets the partitions to read. All decisions are made synchronously, in this class and
    in `PartitionPlacer`. Coroutines only send requests to brokers and pass the responses on.
    """

    def __init__(
        self,
        brokers: BrokerPool,
        cluster: Cluster,
        fetch: FetchConfig,
        config: EngineConfig,
        *,
        randomness: Random,
        recorder: Recorder | None = None,
    ) -> None:
        self.events = EventBus()
        self.recorder = recorder or Recorder()
        self.budget = Budget(config.max_buffered_bytes)
        self._cursors: dict[TopicPartition, Cursor] = {}
        # The partitions of each channel that have not reached their end. A scan of all cursors
        # would be too slow.
        self._unfinished: defaultdict[Channel, set[TopicPartition]] = defaultdict(set)
        # log end and time of removal of partitions that are no longer read, the oldest first
        self._last_ends: dict[TopicPartition, tuple[int, float]] = {}
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._scope = Scope("fetch manager")
        self._finder = LeaderFinder(cluster, config.refresh_leader_backoff_ms, randomness)
        self._context = FetcherContext(
            brokers=brokers,
            budget=self.budget,
            recorder=self.recorder,
            config=fetch,
            reports=asyncio.Queue(),
            expects_cursors=self._expects_cursors,
            fetchers=lambda: len(self._pool),
            take_back=lambda fetcher: self._pool.take_back(fetcher),
        )
        self._pool = FetcherPool(self._context, config.num_consumer_fetchers, self._scope)
        self._placer = PartitionPlacer(
            self._context, config, self._pool, self._finder, self.events, self._scope
        )
        self.liveness = Liveness(Stalls(config.stall_timeout_ms / 1000))

    def _expects_cursors(self) -> bool:
        """Return whether a partition without a broker is likely to get one soon.

        Fetchers then use short polls, because the partition may be added to them. Partitions that
        have had errors for 5 s do not count.
        """
        now = loop_time()
        return any(
            cursor.errors.since is None or now - cursor.errors.since < 5
            for cursor in self._finder.unplaced.values()
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        self.recorder.loop = asyncio.get_running_loop()
        await stack.enter_async_context(self._scope)
        self._scope.start(self._place(), "place partitions")
        self._scope.start(self._process_reports(), "process fetcher reports")
        self._scope.start(self._check_periodically(), "check fetchers")

    async def _before_close(self, error: BaseException | None) -> None:
        if self._scope.is_open:
            self.reconcile({})
        self._pool.close()
        for channel in self._channels:
            channel.close()  # readers that wait reach the end
        self.events.end()

    def set_owner(self, owner: TargetOwner) -> None:
        """Set the component that decides on the fetch targets, which is the rebalancer."""
        self._placer.owner = owner

    def channel(self) -> Channel:
        """Return a new channel, which buffers records of a stream within the memory budget."""
        channel = Channel(self.budget)
        self._channels.add(channel)
        self.budget.divide(len(self._channels))
        return channel

    def reconcile(self, targets: Mapping[TopicPartition, FetchTarget]) -> None:
        """Read exactly the partitions in `targets` from now on.

        A partition that is already read, with the same channel and epoch, continues at its
        position. After this call, no records of partitions that are not in `targets` are delivered.
        """
        self._scope.check_open()
        for cursor in [cursor for tp, cursor in self._cursors.items() if tp not in targets]:
            self._drop(cursor)
        self.change(targets)

    def change(self, targets: Mapping[TopicPartition, FetchTarget]) -> None:
        """Add or change the partitions in `targets`. All other partitions are read as before."""
        self._scope.check_open()
        new: list[Cursor] = []
        for tp, target in targets.items():
            cursor = self._cursors.get(tp)
            if cursor is not None and (
                target.epoch != cursor.target.epoch or target.channel is not cursor.target.channel
            ):
                self._drop(cursor)
                cursor = None
            if cursor is None:
                cursor = self._cursors[tp] = Cursor.of(tp, target)
                if tp in self._last_ends:
                    # a broker does not resend an unchanged high watermark within a fetch session
                    cursor.set_log_end(self._last_ends.pop(tp)[0])
                if not cursor.finished:
                    self._unfinished[target.channel].add(tp)
                    self._finder.add(cursor)
                    new.append(cursor)
            if target.paused != cursor.paused:
                self._pause(cursor, paused=target.paused)
        for channel in {cursor.target.channel for cursor in new}:
            channel.reopen()
        self._placer.place_known(new)
        for channel in {target.channel for target in targets.values() if target.end is not None}:
            self._close_finished(channel)  # a channel may be finished from the start

    def _drop(self, cursor: Cursor) -> None:
        partition = cursor.partition
        del self._cursors[partition]
        self._mark_finished(cursor)
        self._last_ends[partition] = cursor.high_watermark, loop_time()
        self._placer.detach(cursor)
        cursor.target.channel.drop(partition)
        cursor.target.channel.reopen()  # the partition may be added again

    def _mark_finished(self, cursor: Cursor) -> None:
        """Remove a cursor from the unfinished cursors of its channel.

        The cursor has reached its end offset, or is no longer read. A channel without unfinished
        cursors can be finished.
        """
        unfinished = self._unfinished[cursor.target.channel]
        unfinished.discard(cursor.partition)
        if not unfinished:
            del self._unfinished[cursor.target.channel]

    def progress(self) -> dict[TopicPartition, Progress]:
        """Return the progress of each partition that is read."""
        return {tp: self._progress(cursor) for tp, cursor in self._cursors.items()}

    def _progress(self, cursor: Cursor) -> Progress:
        fetcher = cursor.fetcher
        last_response = None if fetcher is None else fetcher.last_response(cursor)
        return Progress(
            cursor.offset,
            cursor.high_watermark,
            None if fetcher is None else fetcher.node_id,
            cursor.errors.last,
            cursor.start_offset,
            cursor.topic_ids.current,
            cursor.last_stable_offset,
            None if last_response is None else loop_time() - last_response,
        )

    def start_offsets(self) -> dict[TopicPartition, int]:
        """Return the offset at which reading of each partition began.

        Partitions whose start is not known yet are left out. If `auto_offset_reset` was applied
        later, the offset is the one at which reading continued.
        """
        return {
            tp: cursor.start_offset
            for tp, cursor in self._cursors.items()
            if cursor.start_offset is not None
        }

    def start_offset(self, tp: TopicPartition) -> int | None:
        """Return the offset at which reading of a partition began, or None if it is unknown."""
        cursor = self._cursors.get(tp)
        return None if cursor is None else cursor.start_offset

    def stalled(self) -> Mapping[TopicPartition, Stalled]:
        """Return the partitions that should make progress and do not, each with the reason."""
        return self.liveness.stalls.current

    @property
    def connections(self) -> ConnectionCounts:
        """The counts of connections to brokers: opened, broken and failed to open."""
        return self._context.brokers.counts

    @property
    def last_received(self) -> float:
        """The loop time at which a broker last sent response data."""
        return self._pool.last_received

    def _pause(self, cursor: Cursor, *, paused: bool) -> None:
        if paused:
            cursor.target.channel.hold(cursor.partition)
        else:
            cursor.target.channel.release(cursor.partition)
        self._pool.pause(cursor, paused=paused)

    # --- background tasks ------------------------------------------------------------------------

    async def _place(self) -> None:
        async for response in self._finder.responses():
            if isinstance(response, ConsumerError):
                self._placer.on_metadata_error(response)
            else:
                self._placer.on_metadata(response, list(self._cursors.values()))

    async def _process_reports(self) -> None:
        while True:
            report = await self._context.reports.get()
            self._placer.on_report(report)
            cursor = report.cursor
            if isinstance(report, Finish) and self._cursors.get(cursor.partition) is cursor:
                self._mark_finished(cursor)
                self._close_finished(cursor.target.channel)

    def _close_finished(self, channel: Channel) -> None:
        """Finish a channel if all of its partitions have reached their end offsets.

        If all partitions of the manager have reached them, finish all channels, also those without
        partitions.
        """
        if channel not in self._unfinished:
            channel.finish()
        if not self._unfinished:
            for other in self._channels:
                other.finish()

    async def _check_periodically(self) -> None:
        """Check periodically for late brokers, idle fetchers and stalled partitions."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            late = list(self._pool.late())
            now = loop_time()
            used = {fetcher.address for fetcher in self._pool if fetcher.cursors}
            self.liveness.update(self._channels, used, {fetcher.address for fetcher in late}, now)
            for fetcher in late:
                self._finder.mark_stale(cursor.partition.topic for cursor in fetcher.cursors)
            self._finder.mark_stale(
                tp.topic
                for tp, cursor in self._cursors.items()
                if cursor.replica is not NO_REPLICA and cursor.replica.is_expired(now)
            )
            self._pool.close_idle()
            self._drop_old_ends(now)
            stalls = self.liveness.stalls
            for event in stalls.check(suspects(self._cursors.values(), late, stalls.current), now):
                self.events.publish(event)

    def _drop_old_ends(self, now: float) -> None:
        """Drop the cached log ends of partitions that were removed more than 10 minutes ago."""
        old = takewhile(lambda item: item[1][1] < now - _KEPT_SECONDS, self._last_ends.items())
        for tp, _ in list(old):
            del self._last_ends[tp]
