"""Who sees every record before the user does, and every commit after it was made."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.model import TopicPartition
from asyncconsumer.offsets.store import OffsetStore, failed_by
from asyncconsumer.wire.accel import Record

_log: Final = logging.getLogger(__name__)


class Interceptor:
    """Override what you need. What a method raises is logged, and otherwise does not matter."""

    def on_consume(self, record: Record) -> Record:
        """What the user is given in place of the record; by default the record itself."""
        return record

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These offsets were committed."""


class Interceptors:
    """Several, one after the other."""

    def __init__(self, each: Iterable[Interceptor]) -> None:
        if not isinstance(each, Iterable):
            raise ConfigError(f"interceptors must be a list of them, got {each!r}")
        self._each = tuple(each)
        for one in self._each:
            if not (hasattr(one, "on_consume") and hasattr(one, "on_commit")):
                raise ConfigError(f"{one!r} is no interceptor: derive it from Interceptor")

    def __bool__(self) -> bool:
        return bool(self._each)

    def on_consume(self, record: Record) -> Record:
        """What becomes of a record."""
        for one in self._each:
            try:
                record = one.on_consume(record)
            except Exception:  # noqa: BLE001 - a mistake of somebody who only looks on
                _log.exception("an interceptor failed with %r", record)
        return record

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Tell all of a commit."""
        for one in self._each:
            try:
                one.on_commit(offsets)
            except Exception:  # noqa: BLE001 - a mistake of somebody who only looks on
                _log.exception("an interceptor failed with a commit of %r", offsets)


class ToldStore:
    """An offset store whose commits interceptors are told of."""

    def __init__(self, store: OffsetStore, interceptors: Interceptors) -> None:
        self._store = store
        self._interceptors = interceptors

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """As the store."""
        return await self._store.load(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As the store."""
        try:
            await self._store.commit(offsets)
        except ConsumerError as error:
            failed = failed_by(offsets, error)
            if kept := {one: at for one, at in offsets.items() if one not in failed}:
                self._interceptors.on_commit(kept)
            raise
        self._interceptors.on_commit(offsets)
