"""The choice of the broker and of the offset from which each partition is fetched."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Protocol

from asyncconsumer.aio.clock import loop_time
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import EngineConfig
from asyncconsumer.errors import (
    BrokerError,
    ConnectionLost,
    ConsumerError,
    CorruptMessage,
    CorruptRecords,
    LeaderNotAvailable,
    OffsetOutOfRange,
    OffsetUnavailable,
    RequestTimedOut,
    TopicRecreated,
)
from asyncconsumer.events import EventBus, Recreated, Skipped, Truncated
from asyncconsumer.fetch.cursor import Cursor, OffsetState, ReplicaPlacement
from asyncconsumer.fetch.fetcher import (
    Divergence,
    FetcherContext,
    Finish,
    Redirect,
    Refusal,
    Report,
)
from asyncconsumer.fetch.leader_finder import LeaderFinder
from asyncconsumer.fetch.list_offsets import request_log_ends
from asyncconsumer.fetch.policy import (
    NO_REPLICA,
    NO_RESET,
    LogEnds,
    OffsetReset,
    PreferredReplica,
)
from asyncconsumer.fetch.pool import FetcherPool
from asyncconsumer.net.metadata import Broker, Metadata
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import Address, TopicPartition

_LOOKUP_SECONDS: Final = 5.0
_MAX_SHARED: Final = 1_000  # shared `ReplicaPlacement` objects


class TargetOwner(Protocol):
    """The interface of the rebalancer, which sets the partitions to fetch.

    Its method is called synchronously, unlike other reports to higher layers. The cursor, the
    stream, the commits and the fetch target must change to a re-created topic in one step. With a
    queued report, the old offset could be committed for the new topic. The stream could also drop
    the first records of the new topic when it processes the report.
    """

    def on_topic_recreated(self, tp: TopicPartition) -> None:
        """Reset the state of a partition whose topic was re-created.

        The caller has dropped the partition's buffered records.
        """


class PartitionPlacer:
    """The component that decides from which broker each partition is fetched.

    The cursor of a partition is in one of three places. The `LeaderFinder` has it while it needs a
    leader, an offset lookup while it needs an offset, and a fetcher while it is fetched. A cursor
    with a permanent error is in no place, and the partition's reader gets the error.
    """

    def __init__(
        self,
        context: FetcherContext,
        config: EngineConfig,
        pool: FetcherPool,
        finder: LeaderFinder,
        events: EventBus,
        scope: Scope,
    ) -> None:
        self._context = context
        self._config = config
        self._pool = pool
        self._finder = finder
        self._events = events
        self._scope = scope
        self._reset = OffsetReset(config.auto_offset_reset)
        # shared placements by broker id and leader epoch
        self._shared: dict[tuple[int, int], ReplicaPlacement] = {}
        self.owner: TargetOwner | None = None

    def detach(self, cursor: Cursor) -> None:
        """Remove a cursor from its fetcher, from the leader finder, or from an offset lookup."""
        if (fetcher := cursor.fetcher) is not None:
            fetcher.remove(cursor)
        else:
            self._finder.discard(cursor)
            cursor.detach()

    # --- metadata --------------------------------------------------------------------------------

    def place_known(self, cursors: Iterable[Cursor]) -> None:
        """Place new cursors at once if the cached metadata has their leader.

        This saves a metadata request after a rebalance. If the leader has changed, the former
        leader refuses the fetch, and metadata is requested then.
        """
        metadata = self._finder.metadata
        placeable = [cursor for cursor in cursors if metadata.find_leader(cursor.partition)]
        self.on_metadata(metadata, placeable)

    def on_metadata_error(self, error: ConsumerError) -> None:
        """Store the error of a failed metadata request in all cursors that have no broker."""
        for cursor in list(self._finder.unplaced.values()):
            if error.retriable:
                self._note_error(cursor, error)
            else:
                self._fail(cursor, error)

    def on_metadata(self, metadata: Metadata, cursors: Iterable[Cursor]) -> None:
        """Choose a broker for each cursor that has none, or whose leader has changed."""
        unresolved: dict[Address, list[tuple[Cursor, int]]] = defaultdict(list)
        for cursor in cursors:
            if cursor.partition in self._finder.unplaced:
                placed = self._place_unplaced(cursor, metadata)
                if placed and cursor.offset_state is not OffsetState.KNOWN:
                    assert cursor.broker is not None
                    unresolved[cursor.broker.address].append((cursor, cursor.version))
                continue
            fetcher = cursor.fetcher
            if fetcher is not None and self._has_moved(cursor, metadata):
                fetcher.remove(cursor)
                self._finder.add(cursor)
                self._place_unplaced(cursor, metadata)
        for address, versions in unresolved.items():
            self._scope.start(self._look_up(address, versions), f"list offsets of {address}")

    def _has_moved(self, cursor: Cursor, metadata: Metadata) -> bool:
        """Return whether a cursor must leave its broker.

        The reasons are another leader, a new address of the broker, or an expired preferred read
        replica. After it has expired, the leader names one again.
        """
        if not metadata.has_leader(cursor.partition):
            return False
        leader = metadata.leader(cursor.partition)
        current = cursor.broker
        assert current is not None
        if cursor.replica.node_id is None and leader.broker.node_id != current.node_id:
            return leader.epoch < 0 or leader.epoch > current.leader_epoch
        if cursor.replica.is_expired(loop_time()):
            return True
        broker = metadata.brokers.get(current.node_id)
        return broker is None or broker.address != current.address

    def _place_unplaced(self, cursor: Cursor, metadata: Metadata) -> bool:
        """Choose a broker for a cursor, by the metadata. Return whether the cursor now has one."""
        try:
            broker = self._choose_broker(cursor, metadata)
        except TopicRecreated as error:
            if not self._restart(cursor, metadata, error):
                return False
            broker = self._choose_broker(cursor, metadata)
        except BrokerError as error:
            if error.retriable:
                self._note_error(cursor, error)
            else:
                self._fail(cursor, error)
            return False
        if broker == cursor.refused_by:
            cursor.refused_by = None  # retry this broker only after the next metadata response
            return False
        if self._context.brokers.wait_before(broker.address) > 0:
            return False  # the leader may change before the broker may be retried
        self._put(cursor, broker)
        return True

    def _choose_broker(self, cursor: Cursor, metadata: Metadata) -> ReplicaPlacement:
        tp = cursor.partition
        broker, epoch = metadata.find_leader(tp) or metadata.leader(tp)
        topic_id = metadata.topics[tp.topic].topic_id
        ids = cursor.topic_ids
        if ids.current is None:
            cursor.topic_ids = ids._replace(current=topic_id)
        # Thousands of partitions have the same id object, and comparing two UUIDs is slow.
        elif topic_id is not ids.current and ids.is_recreated(tp, topic_id):
            raise TopicRecreated(*tp, cursor.offset)
        if (node_id := cursor.replica.node_id) is not None:
            if cursor.replica.is_expired(loop_time()):
                cursor.replica = NO_REPLICA
            elif node_id in metadata.brokers:
                broker = metadata.brokers[node_id]
            else:
                cursor.replica = cursor.replica.failed(loop_time())
        return self._shared_placement(broker, epoch)

    def _shared_placement(self, broker: Broker, epoch: int) -> ReplicaPlacement:
        """Return a ReplicaPlacement that all partitions of a broker and an epoch share."""
        placement = self._shared.get((broker.node_id, epoch))
        if placement is None or placement.address != broker.address:
            if len(self._shared) >= _MAX_SHARED:
                self._shared.clear()
            placement = ReplicaPlacement(broker.node_id, broker.address, epoch)
            self._shared[broker.node_id, epoch] = placement
        return placement

    def _restart(self, cursor: Cursor, metadata: Metadata, error: TopicRecreated) -> bool:
        """Apply `auto_offset_reset` to a cursor whose topic was re-created.

        If the option is "none" or the cursor has an end offset, return False. The reader of the
        cursor then gets `error`.
        """
        if self._reset == NO_RESET or cursor.target.end is not None:
            self._fail(cursor, error)
            return False
        # records of the old topic have offsets of the old log
        cursor.target.channel.drop(cursor.partition)
        if cursor.paused:
            cursor.target.channel.hold(cursor.partition)
        if self.owner is not None:
            self.owner.on_topic_recreated(cursor.partition)
        self._events.publish(Recreated(cursor.partition, cursor.offset))
        cursor.switch_topic(metadata.topics[cursor.partition.topic].topic_id)
        cursor.jump(self._reset.start)
        return True

    def _put(self, cursor: Cursor, broker: ReplicaPlacement) -> None:
        """Set the broker of a cursor, and start to fetch if the cursor's offset is known.

        If it is not known, the caller has to look up the offset.
        """
        self._finder.discard(cursor)
        cursor.broker = broker
        if cursor.offset_state is OffsetState.KNOWN:
            self._start(cursor)

    def _start(self, cursor: Cursor) -> None:
        assert cursor.broker is not None
        if cursor.finished:  # the end offset is at or before the current offset
            self._context.reports.put_nowait(Finish(cursor, cursor.version))
            return
        fetcher, displaced = self._pool.fetcher_for(cursor, cursor.broker)
        for other in displaced:  # the cursors of a replaced fetcher, whose broker has a new address
            self._finder.add(other)
        fetcher.add(cursor)

    # --- offset lookup ---------------------------------------------------------------------------

    async def _look_up(self, address: Address, versions: list[tuple[Cursor, int]]) -> None:
        """Look up the offsets of cursors at a broker, then start to fetch their partitions.

        `versions` has each cursor with its version at the time of the call. A cursor whose version
        has changed since is ignored, because it was removed or moved.
        """
        epochs: dict[TopicPartition, int] = {}
        timestamps: set[int] = set()
        for cursor, version in versions:
            if cursor.version == version and cursor.broker is not None:
                epochs[cursor.partition] = cursor.broker.leader_epoch
                out_of_range = cursor.offset_state is OffsetState.OUT_OF_RANGE
                timestamps.update((EARLIEST, LATEST) if out_of_range else (cursor.offset,))
        result: dict[TopicPartition, LogEnds | BrokerError] = {}
        failure: ConsumerError = RequestTimedOut(
            address, f"no ListOffsets response within {_LOOKUP_SECONDS:g} s"
        )
        committed_only = self._context.config.committed_only
        brokers = self._context.brokers
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                result = await request_log_ends(
                    brokers, address, epochs, timestamps, committed_only=committed_only
                )
        except TimeoutError:
            pass
        except ConsumerError as error:
            failure = error
        for cursor, version in versions:
            if cursor.version == version:  # otherwise the cursor was removed or moved meanwhile
                self._on_log_ends(cursor, result.get(cursor.partition, failure))

    def _on_log_ends(self, cursor: Cursor, ends: LogEnds | ConsumerError) -> None:
        if isinstance(ends, ConsumerError) and not ends.retriable:
            self._fail(cursor, ends)
        elif isinstance(ends, ConsumerError):
            self._requeue(cursor, ends)
        elif cursor.offset_state is OffsetState.UNRESOLVED:
            cursor.jump(ends.earliest if cursor.offset == EARLIEST else ends.latest)
            self._start(cursor)
        else:
            self._relocate(cursor, ends)

    def _relocate(self, cursor: Cursor, ends: LogEnds) -> None:
        """Apply `auto_offset_reset` to a cursor whose offset the broker reported as out of range.

        `ends` are the current ends of the log. They show whether the report is right.
        """
        reset = self._reset if cursor.target.end is None else NO_RESET
        try:
            target = reset.relocate(cursor.partition, cursor.offset, ends)
        except OffsetUnavailable as error:
            self._fail(cursor, error)
            return
        if target is None:
            # Brokers disagree about the log end, or no longer know the epoch that was read last.
            cursor.jump(cursor.offset)
            self._requeue(cursor, LeaderNotAvailable(f"{cursor.partition} at {cursor.offset}"))
            return
        self._events.publish(Skipped(cursor.partition, cursor.offset, target))
        cursor.jump(target)
        self._start(cursor)

    # --- reports of fetchers ---------------------------------------------------------------------

    def on_report(self, report: Report) -> None:
        """Handle a report of a fetcher about a cursor, which the fetcher has removed.

        Ignore the report if the cursor was moved or removed since.
        """
        cursor = report.cursor
        if cursor.version != report.version:
            return  # the cursor was removed or moved since
        match report:
            case Refusal():
                self._on_refusal(cursor, report)
            case Redirect():
                cursor.replica = PreferredReplica.redirected(report.node_id, loop_time())
                self._finder.add(cursor)
            case Divergence():
                self._on_divergence(cursor, report)
            case Finish():
                pass

    def _on_refusal(self, cursor: Cursor, report: Refusal) -> None:
        error, leader, current = report.error, report.leader, cursor.broker
        at_replica = self._leave_replica(cursor)
        if isinstance(error, OffsetOutOfRange):
            if not at_replica:
                cursor.mark_out_of_range()
            self._finder.add(cursor)
        elif isinstance(error, CorruptMessage | CorruptRecords):
            final = cursor.errors.final_corruption(cursor.partition, cursor.offset, error)
            if final is None:
                self._requeue(cursor, error)
            else:
                self._fail(cursor, final)
        elif not error.retriable:
            self._fail(cursor, error)
        elif leader is not None and (current is None or leader.leader_epoch > current.leader_epoch):
            self._put(cursor, leader)
        else:
            self._requeue(cursor, error)

    def _leave_replica(self, cursor: Cursor) -> bool:
        """Read a cursor only from the leader for a while, if it was read from another replica.

        Return whether it was read from another replica.
        """
        used = cursor.replica.node_id is not None
        cursor.replica = cursor.replica.failed(loop_time())
        return used

    def _on_divergence(self, cursor: Cursor, report: Divergence) -> None:
        """Continue at the first offset whose record may differ from the record that was read.

        The log was truncated there. A cursor with an end offset fails, because the log may never
        reach that offset again.
        """
        if self._leave_replica(cursor):
            self._finder.add(cursor)  # the replica may only lag behind the leader
            return
        if cursor.target.end is not None:
            error = OffsetUnavailable(*cursor.partition, cursor.offset, 0, report.offset)
            self._fail(cursor, error)
            return
        read = cursor.offset
        cursor.jump(min(read, report.offset), report.epoch)
        self._events.publish(Truncated(cursor.partition, cursor.offset, read))
        self._start(cursor)

    # --- errors ----------------------------------------------------------------------------------

    def _requeue(self, cursor: Cursor, error: ConsumerError) -> None:
        """Look up the leader of a cursor again, because of an error.

        The broker that refused the cursor is used again only after the next metadata response.
        """
        cursor.detach()
        # After a lost connection, `BrokerPool` limits the rate of attempts.
        cursor.refused_by = None if isinstance(error, ConnectionLost) else cursor.broker
        self._finder.add(cursor)
        self._note_error(cursor, error)

    def _note_error(self, cursor: Cursor, error: ConsumerError) -> None:
        """Store an error of a cursor.

        If the cursor has had errors for longer than `retry_timeout_ms`, fail it.
        """
        limit_ms, seconds = self._config.retry_timeout_ms, cursor.note_error(error, loop_time())
        if limit_ms is not None and seconds >= limit_ms / 1000:
            self._fail(cursor, error)

    def _fail(self, cursor: Cursor, error: ConsumerError) -> None:
        """Stop reading a partition. Its reader gets the error after all buffered records."""
        self.detach(cursor)
        cursor.note_error(error, loop_time())
        if not cursor.target.channel.closed:
            cursor.target.channel.fail(cursor.partition, error)
