"""No group at all, or one that only keeps offsets: partitions that the user assigns."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from math import inf
from typing import Final

from asyncconsumer.group.membership import Assignment
from asyncconsumer.model import OUTSIDER, Identity, TopicPartition


class ManualMembership:
    """Has what it was told to have. Nobody takes it away."""

    deadline: Final = inf
    last_sign: Final = -inf
    lost: Final = False
    waits_for_share: Final = False
    identity: Final[Identity] = OUTSIDER

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._partitions = dict.fromkeys(partitions, 0)
        self._news = asyncio.Event()
        self._news.set()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Have these, and no others, from now on."""
        self._partitions = dict.fromkeys(partitions, 0)
        self._news.set()

    async def assignments(self) -> AsyncIterator[Assignment]:
        """What was assigned, whenever that changes."""
        while True:
            await self._news.wait()
            self._news.clear()
            yield Assignment(dict(self._partitions))

    def give_way(self) -> bool:
        """Whether something else was assigned."""
        return self._news.is_set()

    async def leave(self) -> None:
        """There is nobody to leave."""
