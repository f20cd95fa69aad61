"""Limits of the time that a stream waits for its next chunk."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.errors import ConsumerTimeout


class IdleTimeout(NamedTuple):
    """The time without records after which a stream ends or raises ConsumerTimeout.

    If `may_end` is set, it is called when the time is over. The stream ends if it returns True, and
    waits again if it returns False. Without `may_end`, the stream raises.
    """

    ms: int
    may_end: Callable[[], bool] | None = None  # False while records cannot arrive, for instance

    async def pop(self, channel: Channel) -> Chunk | None:
        """Return the next chunk of the channel, or None at the end of the stream.

        Raise ConsumerTimeout if no chunk arrives in time and the stream may not end.
        """
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
    """An internal signal that no chunk arrived before the deadline of a wait."""


class Until(NamedTuple):
    """A deadline in loop time for the next chunk. After it, only a buffered chunk is returned."""

    deadline: float

    async def pop(self, channel: Channel) -> Chunk | None:
        """Return the channel's next chunk, or None at the end of the stream.

        Raise NothingYet after the deadline.
        """
        await channel.yield_after_much()  # outside the timeout, which would cut it short
        try:
            async with asyncio.timeout_at(self.deadline) as timeout:
                return await channel.pop()
        except TimeoutError:
            if not timeout.expired():
                raise
        raise NothingYet
