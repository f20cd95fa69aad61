"""An adapter for an offset store of the user, which does not know the state of the group."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from asyncconsumer.aio.wait import wait_until
from asyncconsumer.errors import ConsumerError, NothingClaimed, StoreFailed
from asyncconsumer.offsets.store import OffsetStore, check_loaded
from asyncconsumer.types import TopicPartition


class Owner(Protocol):
    """The interface of the membership that owns the assigned partitions."""

    @property
    def deadline(self) -> float:
        """The loop time until which the partitions are certainly owned."""

    @property
    def lost(self) -> bool:
        """Whether all partitions are known to be lost."""


class UserOffsetStore:
    """An adapter of a user's store that commits only while the partitions are certainly owned.

    Kafka refuses the commit of a fenced member, but a database does not. A commit therefore waits
    until the ownership is confirmed or lost, and the member joins again only after the commit.
    Every error is raised as a `ConsumerError`. Calls have a time limit, because a database that
    hangs would block revocations.
    """

    def __init__(self, store: OffsetStore, owner: Owner, group: str, *, patience_ms: int) -> None:
        self._store = store
        self._owner = owner
        self._group = group
        self._seconds = patience_ms / 1000

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the offset of each partition from the user's store, or None without one."""
        async with self._calling("load"):
            offsets = await self._store.load(partitions)
        check_loaded(offsets)
        return offsets

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets to the user's store as soon as the partitions are certainly owned."""
        await wait_until(self._is_owned)
        async with self._calling("commit"):
            await self._store.commit(offsets)

    def _is_owned(self) -> bool:
        """Return whether the partitions are certainly owned now.

        Raise `NothingClaimed` if they are lost.
        """
        if asyncio.get_running_loop().time() < self._owner.deadline:
            return True
        if self._owner.lost:
            raise NothingClaimed(self._group)
        return False

    @asynccontextmanager
    async def _calling(self, method: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._seconds) as timeout:
                yield
        except ConsumerError:
            raise
        except Exception as error:
            late = isinstance(error, TimeoutError) and timeout.expired()
            reason = f"no result within {self._seconds:g} s" if late else repr(error)
            raise StoreFailed(method, reason) from error
