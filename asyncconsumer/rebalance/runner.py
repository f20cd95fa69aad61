"""A member at work: it follows its assignments, commits now and then, and leaves in good order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import ClosedError, ConfigError, ConsumerError
from asyncconsumer.group.membership import Membership
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.types import MemberIdentity, TopicPartition

_log: Final = logging.getLogger(__name__)
_GRACE: Final = 10.0  # seconds for the last commit and the farewell
_LEAST: Final = 1.0  # of the grace, kept for each step that is still to come
Step: TypeAlias = Callable[[], Awaitable[object]]


class LeavableMembership(Membership, Protocol):
    """A member that can say that it goes."""

    async def leave(self) -> None:
        """Give everything up, also our place in the group."""


class MembershipRunner:
    """What a consumer does once it knows what it wants to read, until `end`."""

    def __init__(
        self,
        who: str,
        membership: LeavableMembership,
        committer: Committer,
        rebalancer: Rebalancer,
    ) -> None:
        self.committer: Final = committer
        self.rebalancer: Final = rebalancer
        self._who = who  # for the log
        self._membership = membership
        self.failure: ConsumerError | None = None  # what ended it, if something did
        self._broken = False  # it is not we who end it
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, scope: Scope, auto_commit_interval_ms: int | None) -> None:
        """Begin, with tasks of that scope; without an interval nothing is committed unasked."""
        self._tasks = [scope.start(self._follow(), "rebalance")]
        if auto_commit_interval_ms is not None:
            seconds = auto_commit_interval_ms / 1000
            self._tasks.append(scope.start(self._commit_now_and_then(seconds), "auto-commit"))
        self._tasks.append(scope.start(self.committer.run(), "commit"))

    async def joined(self) -> None:
        """Wait for the first assignment, or raise what keeps it from coming."""
        await self.rebalancer.rebalanced.wait()
        self.check()

    @property
    def identity(self) -> MemberIdentity | None:
        """As whom the group knows us; None while it does not, or where members have no ids."""
        return getattr(self._membership, "identity", None)

    def check(self) -> None:
        """Raise what ended it, if something did."""
        if self.failure is not None:
            raise self.failure

    @property
    def is_within(self) -> bool:
        """Whether one of our own tasks asks, as on behalf of a listener."""
        return asyncio.current_task() in self._tasks

    def check_not_within(self) -> None:
        """Raise if it is one of our own tasks that asks, for `end` would wait for it."""
        if self.is_within:
            raise ConfigError(
                f"{self._who}: a listener cannot end what it is told of, which waits for it: "
                "have the task that reads records do that"
            )

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, rewind: bool = True
    ) -> dict[TopicPartition, int]:
        """Commit what is acknowledged, or these offsets; return what was committed.

        Without offsets, a call by the task that reads acknowledges what that task has in hand.
        Partitions that are not assigned are left out: their owners would read records again or
        skip some. Offsets that are given may go back, unless `rewind` is off.
        """
        releasing = self.rebalancer.releasing
        wanted = offsets
        if wanted is None:
            for stream in self.rebalancer.streams.all():
                stream.acknowledge_by_reader()
            wanted = {**self.rebalancer.finished(), **releasing}
        mine = self.rebalancer.reading.keys() | releasing.keys()
        ours = {tp: at for tp, at in wanted.items() if tp in mine}
        self.committer.drop(len(wanted) - len(ours))
        return await self.committer.commit(ours, rewind=rewind and offsets is not None)

    def acknowledge_at_exit(self) -> None:
        """Acknowledge what was handed out, because the block was left without an error."""
        for stream in self.rebalancer.streams.all():
            stream.acknowledge_at_exit()

    async def abandon(self, error: ConsumerError) -> None:
        """Commit what is finished and leave the group, though nobody asked for it.

        The error is raised where users wait.
        """
        _log.error("leaving %s: %s", self._who, error)
        self._fail(error)
        await self._stop_following()
        self.rebalancer.streams.close(error)
        await self._in_turn(*self._farewell)

    async def end(self) -> None:
        """Stop reading, commit, leave, and end all streams; within a grace, whatever happens."""
        self._fail(ClosedError(f"{self._who} was closed"))
        try:
            others = partial(_cancel, self._tasks[1:])
            await self._in_turn(self._stop_following, *self._farewell, others)
        finally:
            for task in self._tasks:  # all are over, unless this was cancelled
                task.cancel()
            self.rebalancer.streams.close()

    @property
    def _farewell(self) -> tuple[Step, ...]:
        return (
            partial(self.rebalancer.stop, _GRACE / 3),  # there must be time left to commit
            self.committer.flush,
            self._membership.leave,
        )

    async def _in_turn(self, *steps: Step) -> None:
        """Take the steps within one grace: one that hangs leaves time for the others."""
        end = asyncio.get_running_loop().time() + _GRACE
        for left, step in zip(reversed(range(len(steps))), steps, strict=True):
            try:
                async with asyncio.timeout_at(end - left * _LEAST):
                    await step()
            except (TimeoutError, ConsumerError) as error:  # the others still matter
                _log.warning("leaving %s: %r", self._who, error)

    async def _stop_following(self) -> None:
        """End the rebalancing, not in the middle of a step: a listener may be at work."""
        try:
            async with asyncio.timeout(_GRACE / 2):
                await self.rebalancer.idle.wait()
                if self._broken:
                    await asyncio.wait(self._tasks[:1])  # it is leaving already
        except TimeoutError:
            _log.warning("%s: a rebalance is broken off", self._who)
        await _cancel(self._tasks[:1])

    def _fail(self, error: ConsumerError) -> None:
        """There will be no first share, if there was none yet: whoever waits for it must know."""
        self.failure = self.failure or error
        self.rebalancer.rebalanced.set()

    async def _follow(self) -> None:
        """Rebalance, for ever. What ends that is raised where users wait.

        They may not wait for long yet, with a record in hand, so others get what was ours now.
        """
        try:
            await self.rebalancer.run()
        except ConsumerError as error:
            self.rebalancer.streams.close(error)
            self._fail(error)
            self._broken = True
            await self._in_turn(*self._farewell)

    async def _commit_now_and_then(self, seconds: float) -> None:
        log = RateLimitedLogger(_log)
        while True:
            await asyncio.sleep(seconds)
            if self._membership.lost:
                continue
            try:
                await self.commit()
            except ConsumerError as error:
                log.warning("%s, auto-commit: %s", self._who, error)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
