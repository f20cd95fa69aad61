"""The tasks of a membership (rebalance, auto-commit and commit) and their orderly end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
_GRACE: Final = 10.0  # seconds for the last commit and for leaving the group
_MIN_STEP_SECONDS: Final = 1.0  # seconds of the grace reserved for each later step
LeaveStep: TypeAlias = Callable[[], Awaitable[object]]


class LeavableMembership(Membership, Protocol):
    """A membership that can leave its group."""

    async def leave(self) -> None:
        """Release all partitions and leave the group."""


class MembershipRunner:
    """The rebalance, commit and auto-commit tasks of one membership. They run until `end`."""

    def __init__(
        self,
        label: str,
        membership: LeavableMembership,
        committer: Committer,
        rebalancer: Rebalancer,
    ) -> None:
        self.committer: Final = committer
        self.rebalancer: Final = rebalancer
        self._label = label  # the name of the membership in log messages
        self._membership = membership
        self.failure: ConsumerError | None = None  # the error that ended the membership, if any
        self._failed = False  # the membership ended because of an error, not by the user
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, scope: Scope, auto_commit_interval_ms: int | None) -> None:
        """Start the tasks in `scope`. With an interval of None there are no auto-commits."""
        self._tasks = [scope.start(self._rebalance(), "rebalance")]
        if auto_commit_interval_ms is not None:
            seconds = auto_commit_interval_ms / 1000
            self._tasks.append(scope.start(self._auto_commit(seconds), "auto-commit"))
        self._tasks.append(scope.start(self.committer.run(), "commit"))

    async def joined(self) -> None:
        """Wait for the first assignment. If the membership ends instead, raise the reason."""
        await self.rebalancer.rebalanced.wait()
        self.check()

    @property
    def identity(self) -> MemberIdentity | None:
        """The identity of the member, or None if it has none yet or the group has no ids."""
        return getattr(self._membership, "identity", None)

    def check(self) -> None:
        """Raise the error that ended the membership, if there is one."""
        if self.failure is not None:
            raise self.failure

    @property
    def is_in_listener(self) -> bool:
        """Whether the current task belongs to this runner, as it does in a rebalance listener."""
        return asyncio.current_task() in self._tasks

    def check_not_in_listener(self) -> None:
        """Raise `ConfigError` if the current task is running a rebalance listener.

        `end` waits for the rebalance task, so a listener that called it would wait for itself.
        """
        if self.is_in_listener:
            raise ConfigError(
                f"{self._label}: a rebalance listener cannot change the subscription or close the "
                "consumer, because both wait for the listener; do it in the task that reads records"
            )

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, rewind: bool = True
    ) -> dict[TopicPartition, int]:
        """Commit `offsets`, or the offsets after all acknowledged records.

        Return the committed offsets. Partitions that are not assigned are left out, because their
        owners would read records again or skip some. `offsets` may be smaller than the committed
        offsets, unless `rewind` is False.

        Without `offsets`, a call by a task that reads a stream also acknowledges the records that
        this task has in flight.
        """
        releasing = self.rebalancer.releasing
        requested = offsets
        if requested is None:
            self.acknowledge_by_reader()
            requested = {**self.rebalancer.finished(), **releasing}
        assigned = self.rebalancer.reading.keys() | releasing.keys()
        owned = {tp: offset for tp, offset in requested.items() if tp in assigned}
        self.committer.count_dropped(len(requested) - len(owned))
        return await self.committer.commit(owned, rewind=rewind and offsets is not None)

    def acknowledge_by_reader(self) -> None:
        """Acknowledge the records that the current task has in flight, if it reads a stream."""
        for stream in self.rebalancer.streams.all():
            stream.acknowledge_by_reader()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Return a context manager for the time in which the current task waits for a rebalance.

        If this task reads a stream, the rebalance must not wait for its records in flight.
        """
        with ExitStack() as stack:
            for stream in self.rebalancer.streams.all():
                stack.enter_context(stream.waiting_elsewhere())
            yield

    def acknowledge_at_exit(self) -> None:
        """Acknowledge the delivered records of all streams.

        The consumer calls this if its ``async with`` block ends without an error.
        """
        for stream in self.rebalancer.streams.all():
            stream.acknowledge_at_exit()

    async def abandon(self, error: ConsumerError) -> None:
        """Commit acknowledged records and leave the group, because of `error`.

        Streams then raise the error after their buffered records.
        """
        _log.error("leaving %s because of an error: %s", self._label, error)
        self._fail(error)
        await self._stop_rebalancing()
        self.rebalancer.streams.close(error)
        await self._run_steps(*self._leave_steps)

    async def end(self) -> None:
        """Stop reading, commit, leave the group and close all streams, in at most 10 seconds."""
        self._fail(ClosedError(f"{self._label} was closed"))
        try:
            others = partial(_cancel, self._tasks[1:])
            await self._run_steps(self._stop_rebalancing, *self._leave_steps, others)
        finally:
            for task in self._tasks:  # all have ended, unless this was cancelled
                task.cancel()
            self.rebalancer.streams.close()

    @property
    def _leave_steps(self) -> tuple[LeaveStep, ...]:
        return (
            # two thirds are left for the commit and for leaving
            partial(self.rebalancer.stop, _GRACE / 3),
            self.committer.flush,
            self._membership.leave,
        )

    async def _run_steps(self, *steps: LeaveStep) -> None:
        """Run the steps of leaving, one after the other, within one time limit.

        Each step must end early enough to leave time for the following ones. A failed step is
        logged.
        """
        end = asyncio.get_running_loop().time() + _GRACE
        for remaining, step in zip(reversed(range(len(steps))), steps, strict=True):
            try:
                async with asyncio.timeout_at(end - remaining * _MIN_STEP_SECONDS):
                    await step()
            except (TimeoutError, ConsumerError) as error:  # the other steps must still run
                _log.warning("a step of leaving %s failed: %r", self._label, error)

    async def _stop_rebalancing(self) -> None:
        """End the rebalance task.

        Wait for the end of a running rebalance, because a listener may be active. Cancel it after
        half of the time limit for leaving the group.
        """
        try:
            async with asyncio.timeout(_GRACE / 2):
                await self.rebalancer.idle.wait()
                if self._failed:
                    await asyncio.wait(self._tasks[:1])  # the task itself leaves the group
        except TimeoutError:
            _log.warning(
                "%s: cancelled a rebalance that took longer than %g s", self._label, _GRACE / 2
            )
        await _cancel(self._tasks[:1])

    def _fail(self, error: ConsumerError) -> None:
        """Store the error for `check`, and wake callers that wait in `joined`."""
        self.failure = self.failure or error
        self.rebalancer.rebalanced.set()

    async def _rebalance(self) -> None:
        """Run the rebalancer. If it fails, leave the group, and let the streams raise the error.

        The member leaves at once, because readers may notice the error late.
        """
        try:
            await self.rebalancer.run()
        except ConsumerError as error:
            self.rebalancer.streams.close(error)
            self._fail(error)
            self._failed = True
            await self._run_steps(*self._leave_steps)

    async def _auto_commit(self, seconds: float) -> None:
        log = RateLimitedLogger(_log)
        while True:
            await asyncio.sleep(seconds)
            if self._membership.lost:
                continue
            try:
                await self.commit()
            except ConsumerError as error:
                log.warning("the auto-commit of %s failed: %s", self._label, error)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
