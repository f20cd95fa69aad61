"""The check of `max_poll_interval_ms`, the longest time between two requests of a reader."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from asyncconsumer.aio.wait import wait_until
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import ConsumerError, PollIntervalExceeded
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.rebalance.runner import MembershipRunner

_log: Final = logging.getLogger(__name__)


async def leave_when_exceeded(
    runner: MembershipRunner, group_id: str, max_poll_interval_ms: int
) -> None:
    """Leave the group when a reader has asked for no record for `max_poll_interval_ms`.

    The reader gets PollIntervalExceeded. A reader that waits for records, or whose partitions are
    paused, does not exceed the interval.
    """
    await _exceeded(runner, max_poll_interval_ms / 1000)
    await runner.abandon(PollIntervalExceeded(group_id, max_poll_interval_ms))


async def suspend_when_exceeded(
    runner: MembershipRunner,
    membership: ClassicMembership,
    max_poll_interval_ms: int,
    *,
    auto_commit: bool,
) -> None:
    """Release all partitions whenever no record was requested for `max_poll_interval_ms`.

    The member gets partitions again when a reader asks for a record. Readers get no error. With
    `auto_commit`, the records that were processed meanwhile are committed first. Otherwise a record
    that always takes longer than the interval would be redelivered forever.
    """

    def asked() -> bool:
        streams = runner.rebalancer.streams.all()
        return not membership.suspended or any(aiter(stream).is_waiting for stream in streams)

    while True:
        await _exceeded(runner, max_poll_interval_ms / 1000)
        _log.warning(
            "no record was requested within %d ms (max_poll_interval_ms): releasing all partitions "
            "until the next request",
            max_poll_interval_ms,
        )
        membership.suspend("no record was requested within max_poll_interval_ms")
        await wait_until(asked)
        await unsuspend(runner, membership, auto_commit=auto_commit)


async def unsuspend(
    runner: MembershipRunner, membership: ClassicMembership, *, auto_commit: bool
) -> None:
    """End the suspension of a member whose reader asks for records, if it is suspended."""
    if auto_commit and membership.suspended:
        await _commit_processed(runner)
    membership.unsuspend()


async def _commit_processed(runner: MembershipRunner) -> None:
    """Commit all delivered records of released partitions, unless their next owner was faster."""
    positions = {tp: revoked.position for tp, revoked in runner.rebalancer.revoked.items()}
    try:
        committed = await runner.committer.load(positions)
        ahead = {tp: offset for tp, offset in positions.items() if offset > (committed[tp] or 0)}
        await runner.committer.commit(ahead)
    except ConsumerError as error:
        _log.warning("failed to commit records after max_poll_interval_ms: %s", error)


async def _exceeded(runner: MembershipRunner, seconds: float) -> None:
    """Wait until a reader has made no progress for `seconds` although its channel has records."""

    def channels() -> Iterable[Channel]:
        return (stream.channel for stream in runner.rebalancer.streams.all())

    now = asyncio.get_running_loop().time
    moved: dict[Channel, tuple[tuple[int, int], float]] = {}
    while True:
        moved = {
            channel: moved[channel]
            if channel in moved and channel.is_due and moved[channel][0] == channel.progress_marker
            else (channel.progress_marker, now())
            for channel in channels()
        }
        if any(now() - since >= seconds for _, since in moved.values()):
            return
        await asyncio.sleep(seconds / 10)
