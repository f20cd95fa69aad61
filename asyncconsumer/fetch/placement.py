"""What becomes of each partition: where it is read, from which offset, or why it is not."""

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

_REPLICA_SECONDS: Final = 300.0  # then the leader is asked again which replica is near
_SHUN_SECONDS: Final = 30.0  # that the leader itself is read after a replica failed us
_LOOKUP_SECONDS: Final = 5.0
_MOST_STRIKES: Final = 3
_MOST_PLACES: Final = 1_000  # that are shared


class PartitionPlacer:
    """Decides, cursor by cursor. A cursor is with the finder, at a fetcher, or being looked up.

    One that can never be read (`_fail`) is nowhere: its reader has been given the error.
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
        """Nobody wants it any more, wherever it is."""
        if (fetcher := cursor.fetcher) is not None:
            fetcher.remove(cursor)
        else:
            self._finder.discard(cursor)
            cursor.take_away()

    # --- what the finder learns ------------------------------------------------------------------

    def place_known(self, cursors: Iterable[Cursor]) -> None:
        """Give new ones a place at once, if it is known: after a rebalance each answer counts.

        If it is not right any more, the broker refuses, and the finder asks.
        """
        known = self._finder.known
        self.on_metadata(known, [one for one in cursors if known.find_leader(one.partition)])

    def on_metadata_error(self, error: ConsumerError) -> None:
        """No broker told where anything is."""
        for cursor in list(self._finder.unplaced.values()):
            if error.retriable:
                self._note_error(cursor, error)
            else:
                self._fail(cursor, error)

    def on_metadata(self, metadata: Metadata, cursors: Iterable[Cursor]) -> None:
        """Give those a place that have none, and those another whose leader is another."""
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
        """Whether its leader is known to be another than the one it is read from."""
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
        """Put a homeless cursor where metadata say, if they do; whether it has a place now."""
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
            cursor.refused_at = None  # but not before the finder has asked again
            return False
        if self._around.brokers.wait_before(place.address) > 0:
            return False  # perhaps there is another leader before it may be tried again
        self._put(cursor, place)
        return True

    def _place(self, cursor: Cursor, metadata: Metadata) -> ReplicaPlacement:
        found = metadata.find_leader(cursor.partition) or metadata.leader(cursor.partition)
        broker, epoch = found
        topic_id = metadata.topics[cursor.partition.topic].topic_id
        cursor.topic_id = cursor.topic_id or topic_id
        # thousands have the very same id, and to compare two takes long
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
        """The same object for all partitions of a broker and an epoch: there may be thousands."""
        place = self._places.get((broker.node_id, epoch))
        if place is None or place.address != broker.address:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            place = ReplicaPlacement(broker.node_id, broker.address, epoch)
            self._places[broker.node_id, epoch] = place
        return place

    def _start_anew(self, cursor: Cursor, metadata: Metadata, error: TopicRecreated) -> bool:
        """It is another topic of the same name: go where the policy says, or give up."""
        if self._config.auto_offset_reset == "none" or cursor.end is not None:
            self._fail(cursor, error)
            return False
        cursor.channel.drop(cursor.partition)  # of the old one: it would count for the new one
        if cursor.paused:
            cursor.channel.hold(cursor.partition)
        self._events.publish(Recreated(cursor.partition, cursor.offset))
        cursor.become(metadata.topics[cursor.partition.topic].topic_id)
        cursor.jump(EARLIEST if self._config.auto_offset_reset == "earliest" else LATEST)
        return True

    def _put(self, cursor: Cursor, place: ReplicaPlacement) -> None:
        """Where it is read from now on; or looked up first, by the caller."""
        self._finder.discard(cursor)
        cursor.place = place
        if cursor.offset_state is OffsetState.SURE:
            self._start(cursor, place)

    def _start(self, cursor: Cursor, place: ReplicaPlacement) -> None:
        if cursor.finished:  # its end is before the beginning of the log
            self._around.reports.put_nowait(Finish(cursor, cursor.version))
            return
        fetcher, left = self._pool.at(cursor, place)
        for other in left:  # of a fetcher whose broker has another address now
            self._finder.add(other)
        fetcher.add(cursor)

    # --- offsets that must be looked up ----------------------------------------------------------

    async def _look_up(self, address: Address, asked: list[tuple[Cursor, int]]) -> None:
        """Ask for those that are not taken away, be it before this task had its first turn."""
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
            if cursor.version == version:  # else it was taken away since
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
            # brokers disagree about where the log ends, or have forgotten the epoch we read last
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

    # --- what fetchers report --------------------------------------------------------------------

    def on_report(self, report: Report) -> None:
        """A fetcher let go of a cursor."""
        cursor = report.cursor
        if cursor.version != report.version:
            return  # it was taken away since
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
        """Go back to the leader for a while, whatever is wrong; whether it was read elsewhere.

        The leader finds nothing wrong with the replica, and would send us there again.
        """
        if cursor.replica is None:
            return False
        cursor.replica, cursor.shuns_replicas_until = None, _now() + _SHUN_SECONDS
        return True

    def _diverged(self, cursor: Cursor, report: Divergence) -> None:
        """The log was cut back, and went on in another way, below what was read."""
        if self._leave_replica(cursor):
            self._finder.add(cursor)  # it may only lag behind: what is true the leader knows
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

    # --- trouble ---------------------------------------------------------------------------------

    def _requeue(self, cursor: Cursor, error: ConsumerError) -> None:
        """It needs a place, and if that is the same again, not at once."""
        cursor.take_away()
        # after a lost connection it is `Brokers` that keeps us from trying too often
        cursor.refused_at = None if isinstance(error, ConnectionLost) else cursor.place
        self._finder.add(cursor)
        self._note_error(cursor, error)

    def _note_error(self, cursor: Cursor, error: ConsumerError) -> None:
        """Keep it in mind, and raise it if it lasts too long."""
        most, seconds = self._config.retry_timeout_ms, cursor.note_error(error, _now())
        if most is not None and seconds >= most / 1000:
            self._fail(cursor, error)

    def _fail(self, cursor: Cursor, error: ConsumerError) -> None:
        """It cannot be read: its reader is told, after everything good."""
        self.take_away(cursor)
        cursor.note_error(error, _now())
        if not cursor.channel.closed:
            cursor.channel.fail(cursor.partition, error)


def _now() -> float:
    return asyncio.get_running_loop().time()
