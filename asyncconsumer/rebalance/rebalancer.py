"""From one assignment to the next: stop reading, commit, let go; then load offsets and read."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from asyncconsumer.errors import ConsumerError, NoCommittedOffset, NotAssigned
from asyncconsumer.events import Event, Rebalanced, Recreated
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
    """Follows a membership. One assignment is dealt with before the next is asked for."""

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
        self.rebalanced = asyncio.Event()  # a first assignment was dealt with
        self.idle = asyncio.Event()  # none is being dealt with: it can be cancelled
        self.idle.set()
        self._membership = membership
        self._manager = manager
        self._offsets = offsets
        self.streams = streams
        self._policy = RebalancePolicy(
            auto_offset_reset, auto_commit, grace, listeners, ends, rewind
        )
        self._change = ListenerCall()
        self._paused: set[TopicPartition] = set()  # also while they are not ours
        self._selected: frozenset[TopicPartition] | None = None  # only these are read
        self._reading = AssignedPartitions()
        self._last_finished: dict[TopicPartition, int] = {}  # as finished, the last time
        self._epoch = 0
        manager.events.on_event(self._on_event)

    @property
    def reading(self) -> Mapping[TopicPartition, PartitionRoute]:
        """What is read now."""
        return self._reading

    @property
    def releasing(self) -> Mapping[TopicPartition, int]:
        """What may be committed though it is read no more: a listener is just told of it."""
        return self._change.releasing

    @property
    def given_up(self) -> Mapping[TopicPartition, RevokedPosition]:
        """What is not ours any more though something of it was handed out, the last time it was."""
        return self._reading.given_up

    def forget_given_up(self) -> None:
        """What was given up so far does not matter any more."""
        self._reading.given_up.clear()

    def finished(self) -> dict[TopicPartition, int]:
        """How far users are done with what they were given, of what is ours: to be committed.

        Of a partition that nothing was read of it is where reading began, as soon as that is
        known: who comes after us begins there, and not at what is the end of the log by then.
        """
        begun = self._manager.begun()
        done = {tp: offset for tp in self._reading if (offset := begun.get(tp)) is not None}
        for stream in {routed.stream for routed in self._reading.values()}:
            done |= {
                tp: offset
                for tp, offset in stream.finished().items()
                if tp in self._reading and self._reading[tp].stream is stream
            }
        # a stream goes back only where the log itself did: what was committed means nothing there
        gone_back = [tp for tp, offset in done.items() if offset < self._last_finished.get(tp, -1)]
        if gone_back:
            self._offsets.forget(gone_back)
        self._last_finished = done
        return done

    async def run(self) -> None:
        """Follow, until the membership ends."""
        async for assignment in self._membership.assignments():
            self.idle.clear()
            now, before = asyncio.get_running_loop().time, self._reading.keys() | ()
            began = now()
            try:
                lost = await self._revoke(assignment)
                await self._assign(assignment)
            finally:
                self.idle.set()
            gained, gone = self._reading.keys() - before, before - self._reading.keys()
            if gained or gone:
                change = frozenset(gained), frozenset(gone - lost), lost
                self._manager.events.publish(Rebalanced(*change, now() - began, assignment.owners))
            for stream in self.streams.all():
                stream.interrupt(assignment.failure)  # an old failure does not matter any more
            self.rebalanced.set()

    def read_again(self, stream: Stream) -> None:
        """Forget what a stream was given ahead, and read it again from what is finished on."""
        self._epoch += 1
        done = self.finished()
        for tp, routed in self._reading.items():
            if routed.stream is stream:
                start = done.get(tp, routed.wanted.offset)
                wanted = routed.wanted._replace(offset=start, epoch=self._epoch)
                self._reading[tp] = routed._replace(wanted=wanted)
        stream.drop()
        self._reconcile()

    def route(self, streams: Streams) -> None:
        """Have these streams read what is ours, from what is finished on; those before end."""
        done, before = self.finished(), self.streams
        self._epoch += 1
        self.streams = streams
        for tp, routed in self._reading.items():
            start = done.get(tp, routed.wanted.offset)
            again = self._routed(tp, 0, start, routed.wanted.end)
            self._reading[tp] = again._replace(since=routed.since)
        before.close()
        self._reconcile()
        self._fail_without_offset(self._reading)

    # --- where to read ---------------------------------------------------------------------------

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read on from there, or from EARLIEST or LATEST. Nothing fetched before is handed out."""
        self._check_assigned(offsets)
        self._epoch += 1
        for tp, offset in offsets.items():
            routed = self._reading[tp]
            routed.stream.forget(tp)
            if routed.wanted.offset == NO_OFFSET:
                routed.stream.channel.drop(tp)  # the error that says so
            routed.stream.begin(tp, offset)
            wanted = routed.wanted._replace(offset=offset, epoch=self._epoch, leader_epoch=-1)
            self._reading[tp] = routed._replace(wanted=wanted)
        self._offsets.forget(offsets)  # what was committed may be gone back from
        self._reconcile(offsets)

    def _on_event(self, event: Event) -> None:
        """Of a topic that was made anew nothing is done yet, whatever was done of the old one."""
        if not isinstance(event, Recreated) or event.partition not in self._reading:
            return
        tp, routed = event.partition, self._reading[event.partition]
        start = EARLIEST if self._policy.auto_offset_reset == "earliest" else LATEST
        routed.stream.forget(tp)
        if self._is_paused(tp):
            routed.stream.hold([tp])
        routed.stream.begin(tp, start)
        self._offsets.forget([tp])
        self._last_finished.pop(tp, None)
        self._epoch += 1
        wanted = routed.wanted._replace(offset=start, leader_epoch=-1)  # as it is read already
        self._reading[tp] = routed._replace(wanted=wanted, since=self._epoch)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`, also if they are given up and come back."""
        self._check_assigned(partitions)
        self._paused.update(partitions)
        self._apply_pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Go on with these."""
        self._paused.difference_update(partitions)
        self._apply_pause([tp for tp in partitions if tp in self._reading])

    def select(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Hand out records of these only; None selects all. Returns whether that is a change."""
        self._check_assigned(partitions or ())
        selected = None if partitions is None else frozenset(partitions)
        if selected == self._selected:
            return False
        self._selected = selected
        reading = self._reading.items()
        self._apply_pause([tp for tp, r in reading if r.wanted.paused != self._is_paused(tp)])
        return True

    def _is_paused(self, tp: TopicPartition) -> bool:
        unselected = self._selected is not None and tp not in self._selected
        return unselected or tp in self._paused

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Those of ours that are paused."""
        return frozenset(self._paused & self._reading.keys())

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record to hand out; None while that is being looked up.

        Of what is being let go of it is where whoever has it next goes on.
        """
        if (released := self._change.releasing.get(partition)) is not None:
            return released
        self._check_assigned([partition])
        routed = self._reading[partition]
        if (position := routed.stream.position(partition)) is not None:
            return position
        if (begun := self._manager.begun_at(partition)) is not None:
            return begun
        return routed.wanted.offset if routed.wanted.offset >= 0 else None

    def start_to_look_up(self, partition: TopicPartition) -> int | None:
        """EARLIEST or LATEST, if it is to be read from there once a listener is done with it."""
        if (start := self._reading[partition].wanted.offset) == NO_OFFSET:
            raise NoCommittedOffset(partition)
        if partition not in self._change.starting:
            return None
        return start if start < 0 else None

    def _check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            if tp not in self._reading:
                raise NotAssigned(tp, self._reading)

    def _apply_pause(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            routed = self._reading[tp]
            paused = self._is_paused(tp)
            (routed.stream.hold if paused else routed.stream.release)([tp])
            self._reading[tp] = routed._replace(wanted=routed.wanted._replace(paused=paused))
        self._reconcile(partitions)

    # --- partitions without an offset ------------------------------------------------------------

    @property
    def without_offset(self) -> frozenset[TopicPartition]:
        """Assigned partitions that wait for a `seek`: they have no offset, and no reset is set."""
        return frozenset(
            tp for tp, routed in self._reading.items() if routed.wanted.offset == NO_OFFSET
        )

    async def load_missing_offsets(self) -> None:
        """Load the offsets of partitions without one again; readers get an error for the rest."""
        if without := self.without_offset:
            found = await self._offsets.load(without)
            still = self.without_offset
            self.seek({tp: at for tp, at in found.items() if at is not None and tp in still})
            self._fail_without_offset(without)

    def _fail_without_offset(self, partitions: Collection[TopicPartition]) -> None:
        """Have the readers of those of them that have no offset get an error, once for each."""
        for tp in self.without_offset.intersection(partitions):
            channel = self._reading[tp].stream.channel
            channel.drop(tp)  # an error that nobody has got yet
            if self._is_paused(tp):
                channel.hold(tp)
            if not channel.closed:
                channel.fail(tp, NoCommittedOffset(tp))

    # --- rebalancing -----------------------------------------------------------------------------

    async def stop(self, grace: float = 0.0) -> None:
        """Stop reading everything, and commit; at the end, before the membership is given up."""
        self._policy = self._policy._replace(grace=min(grace, self._policy.grace))
        await self._revoke(Assignment())

    async def _revoke(self, assignment: Assignment) -> frozenset[TopicPartition]:
        """Of what is in the assignment no more: stop reading before anything else; what is lost."""
        gone = {
            tp
            for tp, routed in self._reading.items()
            if tp not in assignment.partitions
            or self.streams.of(tp, assignment.partitions[tp]) is not routed.stream
        }
        if not gone:
            return frozenset()
        await self._wait_in_flight(gone - self._lost(gone, assignment))
        lost = self._lost(gone, assignment)  # there may be more of it by now
        starts = {tp: self._reading[tp].wanted.offset for tp in gone}
        done = {tp: start for tp, start in starts.items() if start >= 0}  # if it is not begun yet
        done |= {tp: offset for tp, offset in self.finished().items() if tp in gone}
        self._drop(gone)
        await self._notify_lost(lost)
        revoked = gone - lost
        if revoked and self._policy.auto_commit:
            await self._commit({tp: done[tp] for tp in revoked if tp in done})
        if revoked and self._membership.lost:  # while they were committed
            await self._notify_lost(revoked)
            return frozenset(gone)
        if revoked:
            self._change = ListenerCall(releasing={tp: done[tp] for tp in revoked if tp in done})
            try:
                telling = self._policy.listeners.before_releasing(revoked)
                await call_listener("before_releasing", telling)
            finally:
                self._change = ListenerCall()
            self._offsets.forget(revoked)
        return lost

    def _lost(
        self, gone: Collection[TopicPartition], assignment: Assignment
    ) -> frozenset[TopicPartition]:
        """Which of them are somebody else's already."""
        return frozenset(gone if self._membership.lost else assignment.lost.intersection(gone))

    async def _notify_lost(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._offsets.forget(partitions)
            await call_listener("lost", self._policy.listeners.lost(partitions))

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        begun = self._manager.begun()
        for tp in partitions:
            stream, wanted, _ = self._reading[tp]
            if wanted.offset == NO_OFFSET:
                stream.channel.drop(tp)  # the error that says so
            position, start = stream.position(tp), begun.get(tp)
            if position is None and start is None:
                position = self.position(tp)
            self._reading.give_up(tp, None if position == start else position)
            stream.forget(tp)
            self.streams.end(tp)
        self._reconcile()

    async def _wait_in_flight(self, partitions: Collection[TopicPartition]) -> None:
        """Let users finish what they have in hand of these, so that nobody reads it again."""
        streams: dict[Stream, list[TopicPartition]] = {}
        for tp in partitions:
            streams.setdefault(self._reading[tp].stream, []).append(tp)
        for stream, going in streams.items():
            stream.hold(going)
        try:
            async with asyncio.timeout(self._policy.grace):
                for stream, going in streams.items():
                    await stream.settled(going)
        except TimeoutError:
            if self._policy.grace:
                _log.warning(
                    "a record of %s is still being worked on after %g s: it will be read again",
                    ", ".join(map(str, sorted(partitions))),
                    self._policy.grace,
                )

    async def _assign(self, assignment: Assignment) -> None:
        """Read what is new in the assignment, from where the group has got to."""
        new = [tp for tp in assignment.partitions if tp not in self._reading]
        if not new:
            return
        starts = await self._starts.of(new, assignment, self._reading.begun_with)
        if starts is None:
            return
        self._epoch += 1
        for tp in new:
            self._reading[tp] = self._routed(tp, assignment.partitions[tp], *starts[tp])
        self._change = ListenerCall(starting=frozenset(new))
        try:
            telling = self._policy.listeners.before_starting(assignment, new)
            await call_listener("before_starting", telling)
        finally:
            self._change = ListenerCall()
        self._reconcile()
        self._fail_without_offset(new)  # a listener may have sought

    @property
    def _starts(self) -> StartOffsets:
        return StartOffsets(self._membership, self._offsets, self._policy)

    def _routed(
        self, partition: TopicPartition, number: int, start: int, end: int | None
    ) -> PartitionRoute:
        """To whom a partition goes, to be read from there on, up to there if it has an end."""
        stream = self.streams.of(partition, number)
        epoch = start.leader_epoch if isinstance(start, Offset) else -1
        paused = self._is_paused(partition)
        if paused:
            stream.hold([partition])
        stream.begin(partition, start)
        wanted = FetchTarget(stream.channel, start, self._epoch, end, paused, epoch)
        return PartitionRoute(stream, wanted, self._epoch)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The last commit of partitions that we give up: if it fails, some records come again."""
        try:
            await self._offsets.commit(offsets, rewind=self._policy.rewind)
        except ConsumerError as error:
            _log.warning("%d partitions are given up without a commit: %s", len(offsets), error)

    def _reconcile(self, changed: Collection[TopicPartition] | None = None) -> None:
        """Have the manager read what is ours; or only these: users seek and pause one by one."""
        starting = self._change.starting
        which = self._reading if changed is None else changed
        wanted = {tp: self._reading[tp].wanted for tp in which if tp not in starting}
        reconcile = self._manager.reconcile if changed is None else self._manager.change
        reconcile({tp: each for tp, each in wanted.items() if each.offset != NO_OFFSET})
