"""An adapter for a user's offset store, which does not know the state of the group."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from asyncconsumer.errors import ConsumerError, NothingClaimed, StoreFailed
from asyncconsumer.offsets.store import OffsetStore, check_loaded
from asyncconsumer.types import TopicPartition

_SECONDS_BETWEEN_LOOKS: Final = 0.05


class Owner(Protocol):
    """The owner of the assigned partitions."""

    @property
    def deadline(self) -> float:
        """Return the time until which the partitions are certainly owned."""

    @property
    def lost(self) -> bool:
        """Return whether all partitions are known to be lost."""


class UserOffsetStore:
    """A user's store that commits only while the partitions are certainly owned.

    Kafka refuses the commit of a fenced member, but a database does not. A commit therefore waits
    until the ownership is confirmed or lost. The member waits for this before it joins again. All
    errors become a `ConsumerError`. Calls have a time limit, because a database that hangs would
    block revocations.
    """

    def __init__(self, store: OffsetStore, owner: Owner, group: str, *, patience_ms: int) -> None:
        self._store = store
        self._owner = owner
        self._group = group
        self._seconds = patience_ms / 1000

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Load offsets from the user's store."""
        async with self._asked_to("load"):
            found = await self._store.load(partitions)
        check_loaded(found)
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets to the user's store once the ownership is certain."""
        now = asyncio.get_running_loop().time
        while now() >= self._owner.deadline:
            if self._owner.lost:
                raise NothingClaimed(self._group)
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)  # rare, and there is no event to wait for
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
