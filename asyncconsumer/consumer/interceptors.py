"""The interceptors of a consumer, called for each record before delivery and after each commit."""

import logging
from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.offsets.store import OffsetStore, failed_partitions
from asyncconsumer.records.decoding import MessageBuilder, Record
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)


class Interceptor:
    """A base class for interceptors. Override the methods you need. Exceptions are only logged."""

    def on_consume(self, record: Record) -> Record:
        """Return the record to deliver. It must have the same partition and offset as `record`."""
        return record

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Called after `offsets` were committed."""


class Interceptors:
    """The interceptors of a consumer, in the order of their calls."""

    def __init__(self, each: Iterable[Interceptor]) -> None:
        if not isinstance(each, Iterable):
            raise ConfigError(f"`interceptors` must be a list of interceptors, got {each!r}")
        self._each = tuple(each)
        self._log = RateLimitedLogger(_log)  # an interceptor may fail for every record
        for interceptor in self._each:
            if not (hasattr(interceptor, "on_consume") and hasattr(interceptor, "on_commit")):
                raise ConfigError(
                    f"{interceptor!r} is not an interceptor. Derive its class from `Interceptor`."
                )
            if any(map(iscoroutinefunction, (interceptor.on_consume, interceptor.on_commit))):
                raise ConfigError(
                    f"{interceptor!r} has an `async def` method, and interceptors are not awaited. "
                    "Use plain functions."
                )
        self._builder = MessageBuilder(interceptors=self.functions, intercept_failed=self.failed)

    def __bool__(self) -> bool:
        return bool(self._each)

    @property
    def functions(self) -> tuple[Callable[[Record], Record], ...]:
        """The functions to call for each record before its delivery, in order."""
        return tuple(interceptor.on_consume for interceptor in self._each)

    def on_consume(self, record: Record) -> Record:
        """Pass a record through all interceptors. Return the last result."""
        return self._builder.intercept(record)

    def failed(self, error: Exception, record: Record) -> None:
        """Log an error that an interceptor raised. It never stops the consumer."""
        place = f"{record.topic}[{record.partition}]@{record.offset}"
        self._log.warning("an interceptor failed for the record %s", place, error=error)

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Call all interceptors after a commit."""
        for interceptor in self._each:
            try:
                interceptor.on_commit(offsets)
            except Exception as error:  # noqa: BLE001 - must not stop the consumer
                self._log.warning("an interceptor failed after a commit", error=error)


class InterceptedStore:
    """An offset store that wraps another one, and calls interceptors after each commit."""

    def __init__(self, store: OffsetStore, interceptors: Interceptors) -> None:
        self._store = store
        self._interceptors = interceptors

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition in the wrapped store."""
        return await self._store.load(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit to the wrapped store. Then call the interceptors with the committed offsets.

        If the commit fails for some partitions, the interceptors get the offsets of the others.
        """
        try:
            await self._store.commit(offsets)
        except ConsumerError as error:
            failed = failed_partitions(offsets, error)
            if committed := {tp: offset for tp, offset in offsets.items() if tp not in failed}:
                self._interceptors.on_commit(committed)
            raise
        self._interceptors.on_commit(offsets)
