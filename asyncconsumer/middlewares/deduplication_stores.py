"""Stores of the keys that `Deduplicate` has seen: in memory, in SQLite and in Redis."""

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from asyncconsumer.aio.clock import wall_clock
from asyncconsumer.config.validation import whole_number


class DeduplicationStore(Protocol):
    """The interface of a store that keeps keys for a limited time."""

    async def contains(self, key: str) -> bool:
        """Return whether a key was added and has not expired."""

    async def add(self, key: str, seconds: float) -> None:
        """Add a key that expires after `seconds`."""


class RedisClient(Protocol):
    """The methods of ``redis.asyncio.Redis`` that `RedisStore` calls."""

    def exists(self, *names: str) -> Awaitable[int]:
        """Return the number of the names that exist."""

    def set(self, name: str, value: bytes, *, px: int) -> Awaitable[object]:
        """Set a key that expires after `px` milliseconds."""


class MemoryStore:
    """A store in the memory of this process. It keeps the newest `max_keys` keys."""

    def __init__(self, max_keys: int = 100_000) -> None:
        whole_number("max_keys", max_keys, 1)
        self._max_keys = max_keys
        self._ends: OrderedDict[str, float] = OrderedDict()

    async def contains(self, key: str) -> bool:
        """Return whether a key was added and has not expired."""
        end = self._ends.get(key)
        return end is not None and asyncio.get_running_loop().time() < end

    async def add(self, key: str, seconds: float) -> None:
        """Add a key that expires after `seconds`."""
        self._ends[key] = asyncio.get_running_loop().time() + seconds
        self._ends.move_to_end(key)
        while len(self._ends) > self._max_keys:
            self._ends.popitem(last=False)


class SqliteStore:
    """A store in a SQLite file, which several processes of a machine may share.

    Calls run in a thread. `close` closes the file.
    """

    def __init__(self, path: str | Path, *, now: Callable[[], float] = wall_clock) -> None:
        self._now = now
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY, end REAL)")
        self._database.execute("CREATE INDEX IF NOT EXISTS seen_end ON seen (end)")

    async def contains(self, key: str) -> bool:
        """Return whether a key was added and has not expired."""
        return await asyncio.to_thread(self._contains, key)

    async def add(self, key: str, seconds: float) -> None:
        """Add a key that expires after `seconds`, and delete expired keys."""
        await asyncio.to_thread(self._add, key, seconds)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _contains(self, key: str) -> bool:
        query = "SELECT 1 FROM seen WHERE key = ? AND end > ?"
        return self._database.execute(query, (key, self._now())).fetchone() is not None

    def _add(self, key: str, seconds: float) -> None:
        now = self._now()
        self._database.execute("DELETE FROM seen WHERE end <= ?", (now,))
        self._database.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (key, now + seconds))


class RedisStore:
    """A store in Redis, which all members of a group may share. Redis keys begin with `prefix`."""

    def __init__(self, client: RedisClient, *, prefix: str = "asyncconsumer:seen:") -> None:
        self._client = client
        self._prefix = prefix

    async def contains(self, key: str) -> bool:
        """Return whether a key was added and has not expired."""
        return bool(await self._client.exists(self._prefix + key))

    async def add(self, key: str, seconds: float) -> None:
        """Add a key that expires after `seconds`."""
        await self._client.set(self._prefix + key, b"", px=max(1, round(seconds * 1000)))
