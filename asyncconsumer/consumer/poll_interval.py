"""The check of `max_poll_interval_ms`: the time between two requests of a reader."""

import asyncio
from collections.abc import Callable, Iterable

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import PollIntervalExceeded
from asyncconsumer.rebalance.runner import MembershipRunner


async def leave_when_exceeded(
    following: MembershipRunner, group_id: str, max_poll_interval_ms: int
) -> None:
    """Leave the group after a reader asked for nothing for `max_poll_interval_ms`.

    The reader gets PollIntervalExceeded. A reader that waits for records, or whose partitions
    are paused, does not exceed the interval.
    """

    def channels() -> Iterable[Channel]:
        return (stream.channel for stream in following.rebalancer.streams.all())

    await _exceeded(channels, max_poll_interval_ms / 1000)
    await following.abandon(PollIntervalExceeded(group_id, max_poll_interval_ms))


async def _exceeded(channels: Callable[[], Iterable[Channel]], seconds: float) -> None:
    """Wait until the reader of a channel with records made no progress for `seconds`."""
    now = asyncio.get_running_loop().time
    moved: dict[Channel, tuple[tuple[int, int], float]] = {}
    while True:
        moved = {
            one: moved[one]
            if one in moved and one.is_due and moved[one][0] == one.motion
            else (one.motion, now())
            for one in channels()
        }
        if any(now() - at >= seconds for _, at in moved.values()):
            return
        await asyncio.sleep(seconds / 10)
