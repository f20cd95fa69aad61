"""The change from one assignment to the next: revoke and commit, then load offsets and fetch."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from asyncconsumer.errors import ConsumerError, NoCommittedOffset, NotAssigned
from asyncconsumer.events import Rebalanced
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.membership import Assignment, Membership
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.rebalance.assigned import (
    AssignedPartitions,
    ListenerCall,
    PartitionRoute,
    RevokedPosition,
)
from asyncconsumer.rebalance.pauses import Pauses
from asyncconsumer.rebalance.ports import (
    Ends,
    Listeners,
    OffsetCommits,
    RebalancePolicy,
    Streams,
    call_listener,
    endless,
)
from asyncconsumer.rebalance.start_offsets import NO_OFFSET, StartOffsets
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import Offset, TopicPartition

_log: Final = logging.getLogger(__name__)


class Rebalancer:
    """The object that applies the assignments of a group member, one after the other.

    It revokes and commits partitions, loads the start offsets of new ones, and starts to fetch
    them.
    """

    def __init__(
        self,
        membership: Membership,
        manager: FetchManager,
        offsets: OffsetCommits,
        streams: Streams,
        *,
        auto_offset_reset: str,
        auto_commit: bool,
        listeners: Listeners,
        grace: float = 0.0,
        ends: Ends = endless,
        rewind: bool = False,
    ) -> None:
        self.rebalanced = asyncio.Event()  # the first assignment was applied
        self.idle = asyncio.Event()  # no assignment is being applied, so `run` may be cancelled
        self.idle.set()
        self._membership = membership
        self._manager = manager
        self._offsets = offsets
        self.streams = streams
        self._policy = RebalancePolicy(
            auto_offset_reset, auto_commit, grace, listeners, ends, rewind
        )
        self._change = ListenerCall()
        self._pauses = Pauses()
        self._reading = AssignedPartitions()
        self._last_finished: dict[TopicPartition, int] = {}  # the last result of `finished`
        self._epoch = 0
        manager.set_owner(self)

    @property
    def reading(self) -> Mapping[TopicPartition, PartitionRoute]:
        """The assigned partitions, each with the stream that reads it."""
        return self._reading

    @property
    def releasing(self) -> Mapping[TopicPartition, int]:
        """The revoked partitions that a running listener may still commit, with their offsets."""
        return self._change.releasing

    @property
    def revoked(self) -> Mapping[TopicPartition, RevokedPosition]:
        """The last position of each revoked or lost partition of which records were delivered."""
        return self._reading.revoked

    def forget_revoked(self) -> None:
        """Clear the positions in `revoked`."""
        self._reading.revoked.clear()

    def finished(self) -> dict[TopicPartition, int]:
        """Return the offset to commit for each assigned partition.

        It is the offset after the last acknowledged record, or the start offset if no record is
        acknowledged. A committed start offset lets the next owner start there, and not at a later
        end of the log. A partition whose start offset is still being looked up is left out.
        """
        begun = self._manager.start_offsets()
        done = {tp: offset for tp in self._reading if (offset := begun.get(tp)) is not None}
        for stream in {routed.stream for routed in self._reading.values()}:
            done |= {
                tp: offset
                for tp, offset in stream.finished().items()
                if tp in self._reading and self._reading[tp].stream is stream
            }
        # offsets decrease only if the log was truncated; smaller offsets may then be committed
        gone_back = [tp for tp, offset in done.items() if offset < self._last_finished.get(tp, -1)]
        if gone_back:
            self._offsets.forget(gone_back)
        self._last_finished = done
        return done

    async def run(self) -> None:
        """Apply assignments until the membership ends."""
        async for assignment in self._membership.assignments():
            self.idle.clear()
            now, before = asyncio.get_running_loop().time, self._reading.keys() | ()
            began = now()
            try:
                lost = await self._revoke(assignment)
                await self._assign(assignment)
            finally:
                self.idle.set()
            gained, dropped = self._reading.keys() - before, before - self._reading.keys()
            if gained or dropped:
                change, seconds = (
                    (frozenset(gained), frozenset(dropped - lost), lost),
                    now() - began,
                )
                self._manager.recorder.rebalance_duration.observe(seconds)
                self._manager.recorder.forget(dropped)
                self._manager.events.publish(Rebalanced(*change, seconds, assignment.owners))
            for stream in self.streams.all():
                stream.interrupt(assignment.failure)  # None clears an old failure
            self.rebalanced.set()

    def read_again(self, stream: Stream) -> None:
        """Drop the buffered records of a stream, and fetch from its last acknowledged offsets."""
        self._epoch += 1
        done = self.finished()
        for tp, routed in self._reading.items():
            if routed.stream is stream:
                start = done.get(tp, routed.target.offset)
                target = routed.target._replace(offset=start, epoch=self._epoch)
                self._reading[tp] = routed._replace(target=target)
        stream.drop()
        self._reconcile()

    def route(self, streams: Streams) -> None:
        """Replace the streams that read the assigned partitions by `streams`.

        Fetching continues after the last acknowledged records. The former streams are closed.
        """
        done, before = self.finished(), self.streams
        self._epoch += 1
        self.streams = streams
        for tp, routed in self._reading.items():
            start = done.get(tp, routed.target.offset)
            again = self._routed(tp, 0, start, routed.target.end)
            self._reading[tp] = again._replace(since=routed.since)
        before.close()
        self._reconcile()
        self._fail_without_offset(self._reading)

    # --- positions -------------------------------------------------------------------------------

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue each partition at its offset, or at EARLIEST or LATEST.

        Drop the buffered records of these partitions. Raise `NotAssigned` for one that is not
        assigned.
        """
        self.check_assigned(offsets)
        self._epoch += 1
        for tp, offset in offsets.items():
            routed = self._reading[tp]
            routed.stream.forget(tp)
            if routed.target.offset == NO_OFFSET:
                routed.stream.channel.drop(tp)  # the NoCommittedOffset error
            routed.stream.begin(tp, offset)
            target = routed.target._replace(offset=offset, epoch=self._epoch, leader_epoch=-1)
            self._reading[tp] = routed._replace(target=target)
        self._offsets.forget(offsets)  # a later commit may be smaller
        self._reconcile(offsets)

    def on_topic_recreated(self, tp: TopicPartition) -> None:
        """Reset the position of a partition whose topic was re-created, and its known offsets."""
        if (routed := self._reading.get(tp)) is None:
            return
        start = EARLIEST if self._policy.auto_offset_reset == "earliest" else LATEST
        routed.stream.forget(tp)
        if tp in self._pauses:
            routed.stream.hold([tp])
        routed.stream.begin(tp, start)
        self._offsets.forget([tp])
        self._last_finished.pop(tp, None)
        self._epoch += 1
        target = routed.target._replace(offset=start, leader_epoch=-1)
        self._reading[tp] = routed._replace(target=target, since=self._epoch)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver no records of these partitions until `resume`, even after a rebalance."""
        self.check_assigned(partitions)
        self._pauses.partitions.update(partitions)
        self._apply_pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver records of these paused partitions again."""
        self._pauses.partitions.difference_update(partitions)
        self._apply_pause([tp for tp in partitions if tp in self._reading])

    def select(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Deliver only records of `partitions`. None stands for all partitions.

        Return whether the selection has changed. Partitions may also be assigned later.
        """
        if changed := self._pauses.select(partitions):
            self._apply_changed_pauses()
        return changed

    def pause_topics(self, topics: Collection[str]) -> None:
        """Deliver no records of these topics, even of partitions that are assigned later.

        Topics of an earlier call that are not in `topics` are delivered again.
        """
        self._pauses.pause_topics(topics)
        self._apply_changed_pauses()

    @property
    def selected(self) -> frozenset[TopicPartition] | None:
        """The partitions that `select` chose, or None if all partitions are delivered."""
        return self._pauses.selected

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        return frozenset(self._pauses.partitions & self._reading.keys())

    @property
    def paused_topics(self) -> frozenset[str]:
        """The topics that are paused with all of their partitions."""
        return self._pauses.topics

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to deliver, or None while that offset is looked up.

        For a partition that is being revoked, return the offset at which the next owner starts.
        """
        if (released := self._change.releasing.get(partition)) is not None:
            return released
        self.check_assigned([partition])
        routed = self._reading[partition]
        if (position := routed.stream.position(partition)) is not None:
            return position
        if (begun := self._manager.start_offset(partition)) is not None:
            return begun
        return routed.target.offset if routed.target.offset >= 0 else None

    def start_to_look_up(self, partition: TopicPartition) -> int | None:
        """Return EARLIEST or LATEST if the caller must look up that offset, otherwise None.

        The caller must look it up while a rebalance listener is called for the newly assigned
        partition, because the partition is not fetched yet. Later, fetching looks it up. Raise
        `NoCommittedOffset` if no offset is committed and `auto_offset_reset` is "none".
        """
        if (start := self._reading[partition].target.offset) == NO_OFFSET:
            raise NoCommittedOffset(partition)
        if partition not in self._change.starting:
            return None
        return start if start < 0 else None

    def check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Raise `NotAssigned` for the first of `partitions` that is not assigned."""
        for tp in partitions:
            if tp not in self._reading:
                raise NotAssigned(tp, self._reading)

    def _apply_changed_pauses(self) -> None:
        reading = self._reading.items()
        self._apply_pause([tp for tp, r in reading if r.target.paused != (tp in self._pauses)])

    def _apply_pause(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            routed = self._reading[tp]
            paused = tp in self._pauses
            (routed.stream.hold if paused else routed.stream.release)([tp])
            self._reading[tp] = routed._replace(target=routed.target._replace(paused=paused))
        self._reconcile(partitions)

    # --- partitions without an offset ------------------------------------------------------------

    @property
    def without_offset(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are not fetched until a `seek`.

        They have no committed offset, and `auto_offset_reset` is "none".
        """
        return frozenset(
            tp for tp, routed in self._reading.items() if routed.target.offset == NO_OFFSET
        )

    async def load_missing_offsets(self) -> None:
        """Load the committed offsets of the partitions in `without_offset` again, and seek to them.

        If a partition still has no committed offset, its reader gets a NoCommittedOffset.
        """
        if without := self.without_offset:
            loaded = await self._offsets.load(without)
            missing = self.without_offset
            offsets = {tp: offset for tp, offset in loaded.items() if tp in missing}
            self.seek({tp: offset for tp, offset in offsets.items() if offset is not None})
            self._fail_without_offset(without)

    def _fail_without_offset(self, partitions: Collection[TopicPartition]) -> None:
        """Raise NoCommittedOffset once to the reader of each partition that has no start offset.

        Only the given partitions are checked.
        """
        for tp in self.without_offset.intersection(partitions):
            channel = self._reading[tp].stream.channel
            channel.drop(tp)  # an earlier error that is not raised yet
            if tp in self._pauses:
                channel.hold(tp)
            if not channel.closed:
                channel.fail(tp, NoCommittedOffset(tp))

    # --- rebalancing -----------------------------------------------------------------------------

    async def stop(self, grace: float = 0.0) -> None:
        """Revoke and commit all partitions, before the membership leaves its group.

        Wait for records in flight for up to `grace` seconds.
        """
        self._policy = self._policy._replace(grace=min(grace, self._policy.grace))
        await self._revoke(Assignment())

    async def _revoke(self, assignment: Assignment) -> frozenset[TopicPartition]:
        """Revoke the partitions that are not in the assignment. Return those that were lost."""
        dropped = {
            tp
            for tp, routed in self._reading.items()
            if tp not in assignment.partitions
            or self.streams.of(tp, assignment.partitions[tp]) is not routed.stream
        }
        if not dropped:
            return frozenset()
        await self._wait_in_flight(dropped - self._lost(dropped, assignment))
        lost = self._lost(dropped, assignment)  # more partitions may be lost by now
        starts = {tp: self._reading[tp].target.offset for tp in dropped}
        # the start offset, for partitions without a fetched record
        done = {tp: start for tp, start in starts.items() if start >= 0}
        done |= {tp: offset for tp, offset in self.finished().items() if tp in dropped}
        self._drop(dropped)
        await self._notify_lost(lost)
        revoked = dropped - lost
        if revoked and self._policy.auto_commit:
            await self._commit({tp: done[tp] for tp in revoked if tp in done})
        if revoked and self._membership.lost:  # the partitions were lost during the commit
            await self._notify_lost(revoked)
            return frozenset(dropped)
        if revoked:
            self._change = ListenerCall(releasing={tp: done[tp] for tp in revoked if tp in done})
            try:
                call = self._policy.listeners.before_releasing(revoked)
                await call_listener("before_releasing", call)
            finally:
                self._change = ListenerCall()
            self._offsets.forget(revoked)
        return lost

    def _lost(
        self, partitions: Collection[TopicPartition], assignment: Assignment
    ) -> frozenset[TopicPartition]:
        """Return those of the given partitions that other members may already own."""
        return frozenset(
            partitions if self._membership.lost else assignment.lost.intersection(partitions)
        )

    async def _notify_lost(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._offsets.forget(partitions)
            await call_listener("lost", self._policy.listeners.lost(partitions))

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        begun = self._manager.start_offsets()
        for tp in partitions:
            stream, target, _ = self._reading[tp]
            if target.offset == NO_OFFSET:
                stream.channel.drop(tp)  # the NoCommittedOffset error
            position, start = stream.position(tp), begun.get(tp)
            if position is None and start is None:
                position = self.position(tp)
            self._reading.drop(tp, None if position == start else position)
            stream.forget(tp)
            self.streams.end(tp)
        self._reconcile()

    async def _wait_in_flight(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until the records in flight of these partitions are acknowledged.

        After the grace period, log a warning instead. The next owner then reads the unacknowledged
        records again.
        """
        streams: dict[Stream, list[TopicPartition]] = {}
        for tp in partitions:
            streams.setdefault(self._reading[tp].stream, []).append(tp)
        for stream, held in streams.items():
            stream.hold(held)
        try:
            async with asyncio.timeout(self._policy.grace):
                for stream, held in streams.items():
                    await stream.settled(held)
        except TimeoutError:
            if self._policy.grace:
                _log.warning(
                    "records of %s are still in flight after %g s; they will be redelivered",
                    ", ".join(map(str, sorted(partitions))),
                    self._policy.grace,
                )

    async def _assign(self, assignment: Assignment) -> None:
        """Start to fetch the new partitions of the assignment, at their start offsets."""
        new = [tp for tp in assignment.partitions if tp not in self._reading]
        if not new:
            return
        starts = await self._starts.of(new, assignment, self._reading.ever_revoked)
        if starts is None:
            return
        self._epoch += 1
        for tp in new:
            self._reading[tp] = self._routed(tp, assignment.partitions[tp], *starts[tp])
        self._change = ListenerCall(starting=frozenset(new))
        try:
            call = self._policy.listeners.before_starting(assignment, new)
            await call_listener("before_starting", call)
        finally:
            self._change = ListenerCall()
        self._reconcile()
        self._fail_without_offset(new)  # after the listener, which may seek

    @property
    def _starts(self) -> StartOffsets:
        return StartOffsets(self._membership, self._offsets, self._policy)

    def _routed(
        self, partition: TopicPartition, number: int, start: int, end: int | None
    ) -> PartitionRoute:
        """Return the route for reading a partition from `start` to `end`. None means no end.

        `number` is the index of its stream among the streams of the topic.
        """
        stream = self.streams.of(partition, number)
        epoch = start.leader_epoch if isinstance(start, Offset) else -1
        paused = partition in self._pauses
        if paused:
            stream.hold([partition])
        stream.begin(partition, start)
        target = FetchTarget(stream.channel, start, self._epoch, end, paused, epoch)
        return PartitionRoute(stream, target, self._epoch)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of revoked partitions. If that fails, log that records may repeat."""
        try:
            await self._offsets.commit(offsets, rewind=self._policy.rewind)
        except ConsumerError as error:
            _log.warning("%d partitions are revoked without a commit: %s", len(offsets), error)

    def _reconcile(self, changed: Collection[TopicPartition] | None = None) -> None:
        """Pass the positions and pauses of all partitions, or of `changed`, to the fetch manager.

        Seeks and pauses change single partitions, for which a full update would be slow.
        """
        starting = self._change.starting
        partitions = self._reading if changed is None else changed
        targets = {tp: self._reading[tp].target for tp in partitions if tp not in starting}
        reconcile = self._manager.reconcile if changed is None else self._manager.change
        reconcile({tp: target for tp, target in targets.items() if target.offset != NO_OFFSET})
