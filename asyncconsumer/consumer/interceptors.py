"""Interceptors, called for each record before delivery and after each commit."""

import logging
from collections.abc import Iterable, Mapping
from inspect import iscoroutinefunction
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.offsets.store import OffsetStore, failed_partitions
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)


class Interceptor:
    """A base class for interceptors. Override what you need. Exceptions are only logged."""

    def on_consume(self, record: Record) -> Record:
        """Return the record to deliver, of the same partition and offset."""
        return record

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Called after these offsets were committed."""


class Interceptors:
    """The interceptors of a consumer, called in order."""

    def __init__(self, each: Iterable[Interceptor]) -> None:
        if not isinstance(each, Iterable):
            raise ConfigError(f"interceptors must be a list of them, got {each!r}")
        self._each = tuple(each)
        self._log = RateLimitedLogger(_log)  # an interceptor may fail for every record
        for one in self._each:
            if not (hasattr(one, "on_consume") and hasattr(one, "on_commit")):
                raise ConfigError(f"{one!r} is no interceptor: derive it from Interceptor")
            if iscoroutinefunction(one.on_consume) or iscoroutinefunction(one.on_commit):
                raise ConfigError(f"{one!r}: nobody waits for an interceptor: no `async def`")

    def __bool__(self) -> bool:
        return bool(self._each)

    def on_consume(self, record: Record) -> Record:
        """Return the record after all interceptors."""
        for one in self._each:
            try:
                record = _checked(one.on_consume(record), record)
            except Exception as error:  # noqa: BLE001 - must not stop the consumer
                at = f"{record.topic}[{record.partition}]@{record.offset}"
                self._log.warning("an interceptor failed with %s", at, error=error)
        return record

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Call all interceptors after a commit."""
        for one in self._each:
            try:
                one.on_commit(offsets)
            except Exception as error:  # noqa: BLE001 - must not stop the consumer
                self._log.warning("an interceptor failed with a commit", error=error)


def _checked(given: object, record: Record) -> Record:
    """Return `given` if it is a record of the same partition and offset; raise otherwise.

    Another result would lose the record, or commit another one.
    """
    if not isinstance(given, Record):
        raise TypeError(f"on_consume() must return a record, not {type(given).__name__}")
    if _place(given) != _place(record):
        raise ValueError("on_consume() must return a record of the same partition and offset")
    return given


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


class InterceptedStore:
    """An offset store that calls interceptors after each commit."""

    def __init__(self, store: OffsetStore, interceptors: Interceptors) -> None:
        self._store = store
        self._interceptors = interceptors

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the committed offsets of the store."""
        return await self._store.load(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit to the store, then call the interceptors with the committed offsets."""
        try:
            await self._store.commit(offsets)
        except ConsumerError as error:
            failed = failed_partitions(offsets, error)
            if kept := {one: at for one, at in offsets.items() if one not in failed}:
                self._interceptors.on_commit(kept)
            raise
        self._interceptors.on_commit(offsets)
