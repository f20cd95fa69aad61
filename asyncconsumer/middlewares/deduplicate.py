"""A middleware that skips records whose key was processed before."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.middleware import CallNext
from asyncconsumer.middlewares.deduplication_stores import DeduplicationStore, MemoryStore
from asyncconsumer.records.decoding import Record


class Deduplicate:
    """A middleware that skips a record if one with the same key was processed within `window`.

    `key` is a function that returns the text that identifies a message, or None for a record that
    is never skipped. A key is stored after the handler has processed its record. A failed record is
    therefore tried again. A record waits while another call of this object processes its duplicate.

    If the process crashes before the key is stored, the record is processed again.
    """

    def __init__(
        self,
        key: Callable[[Record], str | None],
        *,
        window: timedelta,
        store: DeduplicationStore | None = None,
    ) -> None:
        if window <= timedelta():
            raise ConfigError(f"`window` must be more than 0, got {window!r}")
        self._key = key
        self._seconds = window.total_seconds()
        self._store = MemoryStore() if store is None else store
        self._running: dict[str, asyncio.Event] = {}

    async def __call__(self, call_next: CallNext, context: Context) -> Any:  # noqa: ANN401
        """Call the handler with the records that are new. Return None if no record is new."""
        keys = [self._key(record) for record in context.records]
        begun: dict[str, asyncio.Event] = {}
        try:
            # sorted, because two batches that wait for each other's keys would never end
            for key in sorted({key for key in keys if key is not None}):
                await self._begin(key, begun)
            new = _new_records(context.records, keys, begun)
            if not new:
                return None
            result = await call_next(context.with_item(new if _is_batch(context) else new[0]))
            for key in begun:
                await self._store.add(key, self._seconds)
            return result
        finally:
            for key, ended in begun.items():
                del self._running[key]
                ended.set()

    async def _begin(self, key: str, begun: dict[str, asyncio.Event]) -> None:
        """Add a key to `begun`, unless a record with this key was processed.

        First wait while another call processes a record with this key.
        """
        while (other := self._running.get(key)) is not None:
            await other.wait()
        begun[key] = self._running[key] = asyncio.Event()
        if await self._store.contains(key):
            self._running.pop(key)
            begun.pop(key).set()


def _new_records(
    records: Sequence[Record], keys: Sequence[str | None], new_keys: Collection[str]
) -> list[Record]:
    """Return the first record of each new key, and all records whose key is None."""
    remaining = set(new_keys)
    new = []
    for record, key in zip(records, keys, strict=True):
        if key is None or key in remaining:
            remaining -= {key}
            new.append(record)
    return new


def _is_batch(context: Context) -> bool:
    return isinstance(context.item, list)
