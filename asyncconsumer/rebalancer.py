"""From one assignment to the next: stop reading, commit, let go; then load offsets and read."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from asyncconsumer.errors import ConsumerError, ListenerFailed
from asyncconsumer.fetch.cursor import Wanted
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.membership import Assignment, Membership
from asyncconsumer.model import TopicPartition
from asyncconsumer.streams.stream import Stream
from asyncconsumer.wire.messages import EARLIEST, LATEST

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_TRIES: Final = 0.5


class Offsets(Protocol):
    """Where a group's offsets are."""

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """The offset to go on at; None where there is none."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep them, or raise."""

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They are not ours any more: keep nothing for them that is not kept yet."""


Listener = Callable[[Collection[TopicPartition]], Awaitable[None]]


async def _nobody(partitions: Collection[TopicPartition]) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told what, in the order in which it happens."""

    before_releasing: Listener = _nobody
    """They are no longer read, and committed, and ours until this returns."""
    before_starting: Callable[[Assignment], Awaitable[None]] = field(
        default=lambda assignment: _nobody(())
    )
    """They are ours, and are read when this returns."""
    lost: Listener = _nobody
    """They were taken away: what was not committed will be read again, by another."""


class Streams(Protocol):
    """Who reads what."""

    def of(self, partition: TopicPartition, number: int) -> Stream:
        """The stream of that number that reads a partition."""

    def all(self) -> Collection[Stream]:
        """All there are."""


class Routed(NamedTuple):
    """A partition that is read, and by whom."""

    stream: Stream
    wanted: Wanted


class Rebalancer:
    """Follows a membership. One assignment is dealt with before the next is asked for."""

    def __init__(
        self,
        membership: Membership,
        manager: FetchManager,
        offsets: Offsets,
        streams: Streams,
        *,
        auto_offset_reset: str,
        auto_commit: bool,
        listeners: Listeners,
    ) -> None:
        self.rebalanced = asyncio.Event()  # a first assignment was dealt with
        self.idle = asyncio.Event()  # none is being dealt with: it can be cancelled
        self.idle.set()
        self._membership = membership
        self._manager = manager
        self._offsets = offsets
        self._streams = streams
        self._reset = EARLIEST if auto_offset_reset == "earliest" else LATEST
        self._auto_commit = auto_commit
        self._listeners = listeners
        self._reading: dict[TopicPartition, Routed] = {}
        self._told: dict[TopicPartition, int] = {}  # as finished, the last time
        self._epoch = 0

    @property
    def reading(self) -> Mapping[TopicPartition, Routed]:
        """What is read now."""
        return self._reading

    def finished(self) -> dict[TopicPartition, int]:
        """How far users are done with what they were given, of what is ours: to be committed.

        Of a partition that nothing was read of it is where reading began, as soon as that is
        known: who comes after us begins there, and not at what is the end of the log by then.
        """
        begun = self._manager.begun()
        done = {one: offset for one in self._reading if (offset := begun.get(one)) is not None}
        for stream in {routed.stream for routed in self._reading.values()}:
            done |= {
                one: offset
                for one, offset in stream.finished().items()
                if one in self._reading and self._reading[one].stream is stream
            }
        # a stream goes back only where the log itself did: what was committed means nothing there
        gone_back = [one for one, offset in done.items() if offset < self._told.get(one, -1)]
        if gone_back:
            self._offsets.forget(gone_back)
        self._told = done
        return done

    async def run(self) -> None:
        """Follow, until the membership ends."""
        async for assignment in self._membership.assignments():
            self.idle.clear()
            try:
                await self._let_go(assignment)
                await self._take_up(assignment)
            finally:
                self.idle.set()
            for stream in self._streams.all():
                stream.interrupt(assignment.failure)  # an old failure does not matter any more
            self.rebalanced.set()

    def read_again(self, stream: Stream) -> None:
        """Forget what a stream was given ahead, and read it again from what is finished on."""
        self._epoch += 1
        done = self.finished()
        for one, routed in self._reading.items():
            if routed.stream is stream:
                start = done.get(one, routed.wanted.offset)
                wanted = routed.wanted._replace(offset=start, epoch=self._epoch)
                self._reading[one] = routed._replace(wanted=wanted)
        stream.drop()
        self._reconcile()

    async def stop(self) -> None:
        """Stop reading everything, and commit; at the end, before the membership is given up."""
        await self._let_go(Assignment())

    async def _let_go(self, assignment: Assignment) -> None:
        """Of what is in the assignment no more: stop reading before anything else happens."""
        gone = {
            one
            for one, routed in self._reading.items()
            if one not in assignment.partitions
            or self._streams.of(one, assignment.partitions[one]) is not routed.stream
        }
        if not gone:
            return
        done = {one: offset for one, offset in self.finished().items() if one in gone}
        lost = gone if self._membership.lost else gone & assignment.lost
        for one in gone:
            self._reading.pop(one).stream.forget(one)
        self._reconcile()
        if lost:
            self._offsets.forget(lost)
            await _tell("lost", self._listeners.lost(lost))
        if revoked := gone - lost:
            if self._auto_commit:
                await self._commit({one: done[one] for one in revoked if one in done})
            await _tell("before_releasing", self._listeners.before_releasing(revoked))
            self._offsets.forget(revoked)

    async def _take_up(self, assignment: Assignment) -> None:
        """Read what is new in the assignment, from where the group has got to."""
        new = [one for one in assignment.partitions if one not in self._reading]
        if not new:
            return
        known = await self._load(new)
        if known is None:
            return
        await _tell("before_starting", self._listeners.before_starting(assignment))
        self._epoch += 1
        for one in new:
            start = known.get(one)
            if start is None:
                start = EARLIEST if one in assignment.fresh else self._reset
            stream = self._streams.of(one, assignment.partitions[one])
            self._reading[one] = Routed(stream, Wanted(stream.channel, start, self._epoch))
        self._reconcile()

    async def _load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None] | None:
        """Their offsets, as soon as they can be had; None if meanwhile they are not ours."""
        while not self._membership.lost:
            try:
                return await self._offsets.load(partitions)
            except ConsumerError as error:
                if not error.retriable:
                    raise
                _log.warning("offsets of %d partitions: %s", len(partitions), error)
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
        return None

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The last commit of partitions that we give up: if it fails, some records come again."""
        try:
            await self._offsets.commit(offsets)
        except ConsumerError as error:
            _log.warning("%d partitions are given up without a commit: %s", len(offsets), error)

    def _reconcile(self) -> None:
        self._manager.reconcile({one: routed.wanted for one, routed in self._reading.items()})


async def _tell(what: str, listening: Awaitable[None]) -> None:
    """Have a listener told; what it raises is raised where users wait."""
    try:
        await listening
    except ConsumerError:
        raise
    except Exception as error:
        raise ListenerFailed(what, repr(error)) from error
