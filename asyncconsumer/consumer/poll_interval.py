"""The check of `max_poll_interval_ms`, the longest time between two requests of a reader."""

import asyncio
from collections.abc import Callable, Iterable

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import PollIntervalExceeded
from asyncconsumer.rebalance.runner import MembershipRunner


async def leave_when_exceeded(
    runner: MembershipRunner, group_id: str, max_poll_interval_ms: int
) -> None:
    """Leave the group when a reader has asked for no record for `max_poll_interval_ms`.

    The reader gets PollIntervalExceeded. A reader that waits for records, or whose partitions are
    paused, does not exceed the interval.
    """

    def channels() -> Iterable[Channel]:
        return (stream.channel for stream in runner.rebalancer.streams.all())

    await _exceeded(channels, max_poll_interval_ms / 1000)
    await runner.abandon(PollIntervalExceeded(group_id, max_poll_interval_ms))


async def _exceeded(channels: Callable[[], Iterable[Channel]], seconds: float) -> None:
    """Wait until a reader has made no progress for `seconds` although its channel has records."""
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
