"""The fetcher manager: says which partitions are read, from where, into which channel."""

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
    """How far a partition is."""

    fetched: int  # the next offset to ask for; EARLIEST or LATEST until it was looked up
    high_watermark: int  # the end of the log as it was last told, or -1
    node_id: int | None  # of the broker it is read from; None while there is none
    trouble: ConsumerError | None  # why, if it is known
    begun: int | None  # where reading began, or went on after a jump; None until that is known
    topic_id: UUID | None  # None until it is known, and always before Kafka 2.8
    last_stable_offset: int = -1  # the first offset of an open transaction, or the end; or -1
    last_fetch: float | None = None  # seconds since its broker last answered a fetch; None if never


class FetchManager:
    """Reads the partitions that are wanted, within its ``async with`` block.

    There is one verb: `reconcile`. All state is decided on synchronously, in here and in
    `PartitionPlacer`; coroutines only carry questions to brokers and answers back.
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
        # by channel, without those that were fetched to their end; a scan of all would be too slow
        self._unfinished: defaultdict[Channel, set[TopicPartition]] = defaultdict(set)
        self._last_ends: dict[TopicPartition, int] = {}  # of those that are not read any more
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
        """Whether a partition may get a place at any moment; not if it has had none for long."""
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
            channel.close()  # nothing more will come: whoever waits there finds the end
        self.events.end()
        await self._scope.__aexit__(kind, error, where)

    def channel(self) -> Channel:
        """A new channel that shares the budget."""
        channel = Channel(self.budget)
        self._channels.add(channel)
        return channel

    def reconcile(self, wanted: Mapping[TopicPartition, FetchTarget]) -> None:
        """From now on read exactly these.

        A partition that is read already, into the same channel and in the same epoch, is not
        disturbed. Of one that is not wanted any more nothing is handed out after this call.
        """
        self._scope.check_open()
        for cursor in [one for tp, one in self._cursors.items() if tp not in wanted]:
            self._drop(cursor)
        self.change(wanted)

    def change(self, wanted: Mapping[TopicPartition, FetchTarget]) -> None:
        """The same for some partitions; all others are read as before."""
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
                # a broker does not repeat what it told in the same fetch session
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
            self._close_finished(channel)  # those that were finished before they began

    def _drop(self, cursor: Cursor) -> None:
        partition = cursor.partition
        del self._cursors[partition]
        self._mark_finished(cursor)
        self._last_ends[partition] = cursor.high_watermark
        self._placing.take_away(cursor)
        cursor.channel.drop(partition)
        cursor.channel.reopen()  # what was dropped may come back

    def _mark_finished(self, cursor: Cursor) -> None:
        """Nothing more will be fetched for it."""
        unfinished = self._unfinished[cursor.channel]
        unfinished.discard(cursor.partition)
        if not unfinished:
            del self._unfinished[cursor.channel]

    def progress(self) -> dict[TopicPartition, Progress]:
        """How far each partition is that is wanted."""
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
        """Where the reading of each partition began, or went on after a jump, if that is known."""
        return {
            one: cursor.begun for one, cursor in self._cursors.items() if cursor.begun is not None
        }

    def begun_at(self, partition: TopicPartition) -> int | None:
        """The same of one, without a look at all of them."""
        cursor = self._cursors.get(partition)
        return None if cursor is None else cursor.begun

    def stalled(self) -> Mapping[TopicPartition, Stalled]:
        """Partitions that have something to read, or may have, and do not move; and why."""
        return self.vitals.stalls.now

    @property
    def last_heard(self) -> float:
        """When a broker last sent something that was asked for, by the loop's clock."""
        return self._pool.last_heard

    def _pause(self, cursor: Cursor, *, paused: bool) -> None:
        if paused:
            cursor.channel.hold(cursor.partition)
        else:
            cursor.channel.release(cursor.partition)
        self._pool.pause(cursor, paused=paused)

    # --- what runs in the background -------------------------------------------------------------

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
        """A channel of which everything wanted has an end ends when all have come to it.

        When everything has, all channels end, those of which nothing is wanted as well.
        """
        if channel not in self._unfinished:
            channel.finish()
        if not self._unfinished:
            for each in self._channels:
                each.finish()

    async def _keep_watch(self) -> None:
        """Look at everything now and then, for what happens when nothing happens."""
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
