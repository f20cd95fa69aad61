"""For how long a stream waits for the next chunk."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.errors import ConsumerTimeout


class IdleTimeout(NamedTuple):
    """For how long nothing need come; then a stream raises ConsumerTimeout, or may end."""

    ms: int
    may_end: Callable[[], bool] | None = None  # not while nothing could come, for instance

    async def pop(self, channel: Channel) -> Chunk | None:
        """The next chunk, or None at the end."""
        while True:
            try:
                async with asyncio.timeout(self.ms / 1000):
                    return await channel.pop()
            except TimeoutError:
                if self.may_end is None:
                    raise ConsumerTimeout(self.ms) from None
                if self.may_end():
                    return None


class NothingYet(Exception):
    """Nothing came until the deadline of a wait."""


class Until(NamedTuple):
    """A deadline, by the loop's clock. After it, only a chunk that is there is taken."""

    deadline: float

    async def pop(self, channel: Channel) -> Chunk | None:
        """Return the next chunk, or None at the end; raise NothingYet at the deadline."""
        await channel.yield_after_much()  # the timeout below must not cut it short
        try:
            async with asyncio.timeout_at(self.deadline) as timeout:
                return await channel.pop()
        except TimeoutError:
            if not timeout.expired():
                raise
        raise NothingYet
