"""Decisions for each partition: which broker it is read from, and at which offset."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

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
from asyncconsumer.fetch.list_offsets import LogEnds, ends
from asyncconsumer.fetch.pool import FetcherPool
from asyncconsumer.net.metadata import Broker, Metadata
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import Address, TopicPartition

_REPLICA_SECONDS: Final = 300.0  # then the leader is asked again for a preferred replica
_SHUN_SECONDS: Final = 30.0  # reading from the leader after a replica failed
_LOOKUP_SECONDS: Final = 5.0
_MOST_STRIKES: Final = 3
_MOST_PLACES: Final = 1_000  # shared `ReplicaPlacement` objects


class PartitionPlacer:
    """The component that decides from which broker each cursor is fetched.

    A cursor is with the finder, at a fetcher, or waits for an offset lookup. A cursor that can
    never be read (`_fail`) is in none of these; its reader gets the error.
    """

    def __init__(
        self,
        around: FetcherContext,
        config: EngineConfig,
        pool: FetcherPool,
        finder: LeaderFinder,
        events: EventBus,
        scope: Scope,
    ) -> None:
        self._around = around
        self._config = config
        self._pool = pool
        self._finder = finder
        self._events = events
        self._scope = scope
        self._places: dict[tuple[int, int], ReplicaPlacement] = {}  # by broker and leader epoch

    def take_away(self, cursor: Cursor) -> None:
        """Remove a cursor from its fetcher or from the finder."""
        if (fetcher := cursor.fetcher) is not None:
            fetcher.remove(cursor)
        else:
            self._finder.discard(cursor)
            cursor.take_away()

    # --- metadata --------------------------------------------------------------------------------

    def place_known(self, cursors: Iterable[Cursor]) -> None:
        """Place new cursors at once if the cached metadata has their leader.

        This saves a metadata request after a rebalance. If the leader has changed, the broker
        refuses the fetch and the finder asks for metadata.
        """
        known = self._finder.known
        self.on_metadata(known, [one for one in cursors if known.find_leader(one.partition)])

    def on_metadata_error(self, error: ConsumerError) -> None:
        """Note a failed metadata request for all cursors without a broker."""
        for cursor in list(self._finder.unplaced.values()):
            if error.retriable:
                self._note_error(cursor, error)
            else:
                self._fail(cursor, error)

    def on_metadata(self, metadata: Metadata, cursors: Iterable[Cursor]) -> None:
        """Place cursors that have no broker, and move those whose leader changed."""
        unknown: dict[Address, list[tuple[Cursor, int]]] = defaultdict(list)
        for cursor in cursors:
            if cursor.partition in self._finder.unplaced:
                if self._settle(cursor, metadata) and cursor.offset_state is not OffsetState.SURE:
                    assert cursor.place is not None
                    unknown[cursor.place.address].append((cursor, cursor.version))
                continue
            fetcher = cursor.fetcher
            if fetcher is not None and self._has_moved(cursor, metadata):
                fetcher.remove(cursor)
                self._finder.add(cursor)
                self._settle(cursor, metadata)
        for address, lost in unknown.items():
            self._scope.start(self._look_up(address, lost), f"ask {address} for offsets")

    def _has_moved(self, cursor: Cursor, metadata: Metadata) -> bool:
        """Return whether a cursor must leave its broker.

        The reasons are another leader, a new address, or that the preferred replica has to be
        confirmed.
        """
        if not metadata.has_leader(cursor.partition):
            return False
        leader = metadata.leader(cursor.partition)
        assert cursor.place is not None
        if cursor.replica is None and leader.broker.node_id != cursor.place.node_id:
            return leader.epoch < 0 or leader.epoch > cursor.place.leader_epoch
        if cursor.leader_is_due(_now()):
            return True
        broker = metadata.brokers.get(cursor.place.node_id)
        return broker is None or broker.address != cursor.place.address

    def _settle(self, cursor: Cursor, metadata: Metadata) -> bool:
        """Place an unplaced cursor by the metadata. Return whether it has a broker."""
        try:
            place = self._place(cursor, metadata)
        except TopicRecreated as error:
            if not self._start_anew(cursor, metadata, error):
                return False
            place = self._place(cursor, metadata)
        except BrokerError as error:
            if error.retriable:
                self._note_error(cursor, error)
            else:
                self._fail(cursor, error)
            return False
        if place == cursor.refused_at:
            cursor.refused_at = None  # retry this broker only after the next metadata response
            return False
        if self._around.brokers.wait_before(place.address) > 0:
            return False  # the leader may change before the broker may be retried
        self._put(cursor, place)
        return True

    def _place(self, cursor: Cursor, metadata: Metadata) -> ReplicaPlacement:
        found = metadata.find_leader(cursor.partition) or metadata.leader(cursor.partition)
        broker, epoch = found
        topic_id = metadata.topics[cursor.partition.topic].topic_id
        cursor.topic_id = cursor.topic_id or topic_id
        # Thousands of partitions have the same id object, and comparing two UUIDs is slow.
        if topic_id is not cursor.topic_id and topic_id != cursor.topic_id:
            if topic_id is None or topic_id in cursor.former_ids:
                about = f"{cursor.partition}, of which a broker told that has not heard the news"
                raise LeaderNotAvailable(about)
            raise TopicRecreated(*cursor.partition, cursor.offset)
        if cursor.replica is not None:
            node_id, until = cursor.replica
            if _now() < until and node_id in metadata.brokers:
                broker = metadata.brokers[node_id]
            else:
                cursor.replica = None
                if _now() < until:
                    cursor.shuns_replicas_until = _now() + _SHUN_SECONDS
        return self._shared_place(broker, epoch)

    def _shared_place(self, broker: Broker, epoch: int) -> ReplicaPlacement:
        """Return one shared object for all partitions of a broker and an epoch."""
        place = self._places.get((broker.node_id, epoch))
        if place is None or place.address != broker.address:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            place = ReplicaPlacement(broker.node_id, broker.address, epoch)
            self._places[broker.node_id, epoch] = place
        return place

    def _start_anew(self, cursor: Cursor, metadata: Metadata, error: TopicRecreated) -> bool:
        """Apply `auto_offset_reset` to a re-created topic.

        Return False if the cursor failed with `error` instead.
        """
        if self._config.auto_offset_reset == "none" or cursor.end is not None:
            self._fail(cursor, error)
            return False
        # records of the old topic have offsets of the old log
        cursor.channel.drop(cursor.partition)
        if cursor.paused:
            cursor.channel.hold(cursor.partition)
        self._events.publish(Recreated(cursor.partition, cursor.offset))
        cursor.become(metadata.topics[cursor.partition.topic].topic_id)
        cursor.jump(EARLIEST if self._config.auto_offset_reset == "earliest" else LATEST)
        return True

    def _put(self, cursor: Cursor, place: ReplicaPlacement) -> None:
        """Set the broker of a cursor, and start fetching if its offset is known.

        Otherwise the caller has to look up the offset.
        """
        self._finder.discard(cursor)
        cursor.place = place
        if cursor.offset_state is OffsetState.SURE:
            self._start(cursor, place)

    def _start(self, cursor: Cursor, place: ReplicaPlacement) -> None:
        if cursor.finished:  # the end offset is at or before the current offset
            self._around.reports.put_nowait(Finish(cursor, cursor.version))
            return
        fetcher, left = self._pool.at(cursor, place)
        for other in left:  # of a replaced fetcher, whose broker has a new address
            self._finder.add(other)
        fetcher.add(cursor)

    # --- offset lookup ---------------------------------------------------------------------------

    async def _look_up(self, address: Address, asked: list[tuple[Cursor, int]]) -> None:
        """Look up the offsets of cursors that have not been removed meanwhile.

        A cursor may be removed even before this task runs for the first time.
        """
        epochs: dict[TopicPartition, int] = {}
        moments: set[int] = set()
        for cursor, version in asked:
            if cursor.version == version and cursor.place is not None:
                epochs[cursor.partition] = cursor.place.leader_epoch
                refused = cursor.offset_state is OffsetState.REFUSED
                moments.update((EARLIEST, LATEST) if refused else (cursor.offset,))
        committed_only = self._around.config.committed_only
        found: dict[TopicPartition, LogEnds | BrokerError] = {}
        trouble: ConsumerError = RequestTimedOut(address, f"no offsets in {_LOOKUP_SECONDS:g} s")
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                found = await ends(
                    self._around.brokers, address, epochs, moments, committed_only=committed_only
                )
        except TimeoutError:
            pass
        except ConsumerError as error:
            trouble = error
        for cursor, version in asked:
            if cursor.version == version:  # otherwise it was removed meanwhile
                self._found(cursor, found.get(cursor.partition, trouble))

    def _found(self, cursor: Cursor, found: LogEnds | ConsumerError) -> None:
        assert cursor.place is not None
        if isinstance(found, ConsumerError) and not found.retriable:
            self._fail(cursor, found)
        elif isinstance(found, ConsumerError):
            self._requeue(cursor, found)
        elif cursor.offset_state is OffsetState.SYMBOLIC:
            cursor.jump(found.earliest if cursor.offset == EARLIEST else found.latest)
            self._start(cursor, cursor.place)
        elif found.earliest <= cursor.offset <= found.latest:
            # Brokers disagree about the log end, or no longer know the epoch that was read last.
            cursor.jump(cursor.offset)
            self._requeue(cursor, LeaderNotAvailable(f"{cursor.partition} at {cursor.offset}"))
        elif self._config.auto_offset_reset == "none" or cursor.end is not None:
            self._fail(cursor, OffsetUnavailable(*cursor.partition, cursor.offset, *found))
        else:
            to_earliest = self._config.auto_offset_reset == "earliest"
            target = found.earliest if to_earliest else found.latest
            self._events.publish(Skipped(cursor.partition, cursor.offset, target))
            cursor.jump(target)
            self._start(cursor, cursor.place)

    # --- reports of fetchers ---------------------------------------------------------------------

    def on_report(self, report: Report) -> None:
        """Process the report of a fetcher that removed a cursor."""
        cursor = report.cursor
        if cursor.version != report.version:
            return  # it was removed or moved since
        match report:
            case Refusal():
                self._refused(cursor, report)
            case Redirect():
                cursor.replica = report.node_id, _now() + _REPLICA_SECONDS
                self._finder.add(cursor)
            case Divergence():
                self._diverged(cursor, report)
            case Finish():
                pass

    def _refused(self, cursor: Cursor, report: Refusal) -> None:
        error, leader, known = report.error, report.leader, cursor.place
        at_replica = self._leave_replica(cursor)
        if isinstance(error, OffsetOutOfRange):
            if not at_replica:
                cursor.doubt()
            self._finder.add(cursor)
        elif isinstance(error, CorruptMessage | CorruptRecords):
            cursor.strikes += 1
            if cursor.strikes < _MOST_STRIKES:
                self._requeue(cursor, error)
            elif isinstance(error, CorruptRecords):
                self._fail(cursor, error)
            else:
                reason = "the broker itself reads damaged records there"
                self._fail(cursor, CorruptRecords(*cursor.partition, cursor.offset, reason))
        elif not error.retriable:
            self._fail(cursor, error)
        elif leader is not None and (known is None or leader.leader_epoch > known.leader_epoch):
            self._put(cursor, leader)
        else:
            self._requeue(cursor, error)

    def _leave_replica(self, cursor: Cursor) -> bool:
        """Read from the leader for a while. Return whether a replica was used.

        The leader does not notice that the replica fails, and would redirect to it again.
        """
        if cursor.replica is None:
            return False
        cursor.replica, cursor.shuns_replicas_until = None, _now() + _SHUN_SECONDS
        return True

    def _diverged(self, cursor: Cursor, report: Divergence) -> None:
        """Continue at the divergence after the log was truncated below the position."""
        if self._leave_replica(cursor):
            self._finder.add(cursor)  # the replica may only lag behind the leader
            return
        if cursor.end is not None:
            error = OffsetUnavailable(*cursor.partition, cursor.offset, 0, report.offset)
            self._fail(cursor, error)
            return
        read = cursor.offset
        cursor.jump(min(read, report.offset), report.epoch)
        self._events.publish(Truncated(cursor.partition, cursor.offset, read))
        assert cursor.place is not None
        self._start(cursor, cursor.place)

    # --- errors ----------------------------------------------------------------------------------

    def _requeue(self, cursor: Cursor, error: ConsumerError) -> None:
        """Return a cursor to the finder after an error.

        The broker that refused it is used again only after the next metadata response.
        """
        cursor.take_away()
        # After a lost connection, `BrokerPool` limits the rate of attempts.
        cursor.refused_at = None if isinstance(error, ConnectionLost) else cursor.place
        self._finder.add(cursor)
        self._note_error(cursor, error)

    def _note_error(self, cursor: Cursor, error: ConsumerError) -> None:
        """Note an error, and fail the cursor if errors last too long."""
        most, seconds = self._config.retry_timeout_ms, cursor.note_error(error, _now())
        if most is not None and seconds >= most / 1000:
            self._fail(cursor, error)

    def _fail(self, cursor: Cursor, error: ConsumerError) -> None:
        """Stop reading a partition; its reader gets the error after all buffered records."""
        self.take_away(cursor)
        cursor.note_error(error, _now())
        if not cursor.channel.closed:
            cursor.channel.fail(cursor.partition, error)


def _now() -> float:
    return asyncio.get_running_loop().time()
