"""A store of the user's own, which knows nothing of groups: what it may be asked, and when."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from asyncconsumer.errors import ConfigError, ConsumerError, StoreFailed
from asyncconsumer.model import TopicPartition
from asyncconsumer.offsets.store import OffsetStore

_SECONDS_BETWEEN_LOOKS: Final = 0.05


class OwnStore:
    """Commits only while partitions are certainly ours; whatever goes wrong is a ConsumerError.

    Kafka refuses the commit of a member that it has given up. A database does not, so we wait until
    it is certain again; a commit of partitions that turn out to be lost is withdrawn meanwhile.
    """

    def __init__(self, store: OffsetStore, deadline: Callable[[], float]) -> None:
        self._store = store
        self._deadline = deadline

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """As the store."""
        try:
            return await self._store.load(partitions)
        except ConsumerError:
            raise
        except Exception as error:
            raise StoreFailed("load", repr(error)) from error

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As the store."""
        now = asyncio.get_running_loop().time
        while now() >= self._deadline():  # noqa: ASYNC110 - rare, and no event tells of an answer
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        try:
            await self._store.commit(offsets)
        except ConsumerError:
            raise
        except Exception as error:
            raise StoreFailed("commit", repr(error)) from error


def checked_store(store: OffsetStore | None) -> OffsetStore | None:
    """Raise for one that cannot be asked; users may not check their types."""
    for name in () if store is None else ("load", "commit"):
        if not callable(getattr(store, name, None)):
            raise ConfigError(f"offsets={store!r} is no store: it has no `async def {name}`")
    return store
