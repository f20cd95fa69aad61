"""A store of the user's own, which knows nothing of groups: what it may be asked, and when."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from asyncconsumer.errors import ConsumerError, NothingClaimed, StoreFailed
from asyncconsumer.offsets.store import OffsetStore, check_loaded
from asyncconsumer.types import TopicPartition

_SECONDS_BETWEEN_LOOKS: Final = 0.05


class Owner(Protocol):
    """Whose partitions they are."""

    @property
    def deadline(self) -> float:
        """Until when they certainly are."""

    @property
    def lost(self) -> bool:
        """Whether it is known that none is."""


class UserOffsetStore:
    """Commits only while partitions are certainly ours; whatever goes wrong is a ConsumerError.

    Kafka refuses the commit of a member that it has given up. A database does not, so we wait until
    it is certain again that they are, or that nothing is: the member waits for us before it joins.
    Nor is a database waited for without end: while it hangs nobody gets what we are to give up.
    """

    def __init__(self, store: OffsetStore, owner: Owner, group: str, *, patience_ms: int) -> None:
        self._store = store
        self._owner = owner
        self._group = group
        self._seconds = patience_ms / 1000

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """As the store."""
        async with self._asked_to("load"):
            found = await self._store.load(partitions)
        check_loaded(found)
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As the store."""
        now = asyncio.get_running_loop().time
        while now() >= self._owner.deadline:
            if self._owner.lost:
                raise NothingClaimed(self._group)
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)  # rare, and no event tells of an answer
        async with self._asked_to("commit"):
            await self._store.commit(offsets)

    @asynccontextmanager
    async def _asked_to(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._seconds) as patience:
                yield
        except ConsumerError:
            raise
        except Exception as error:
            late = isinstance(error, TimeoutError) and patience.expired()
            reason = f"no answer in {self._seconds:g} s" if late else repr(error)
            raise StoreFailed(what, reason) from error
