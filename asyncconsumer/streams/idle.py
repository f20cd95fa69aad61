"""For how long a stream waits for the next chunk."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from asyncconsumer.chunks.channel import Channel
from asyncconsumer.chunks.chunk import Chunk
from asyncconsumer.errors import ConsumerTimeout


class Idle(NamedTuple):
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
