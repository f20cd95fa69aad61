"""The fetchers there are: one for each broker and fetcher id, made when one is needed."""

import asyncio
from collections.abc import Iterator
from math import inf
from typing import Final, NamedTuple

from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import ConnectionLost
from asyncconsumer.fetch.cursor import Cursor, ReplicaPlacement
from asyncconsumer.fetch.fetcher import ExpressFetcher, Fetcher, FetcherContext
from asyncconsumer.protocol.java_hash import fetcher_id
from asyncconsumer.types import Address

_IDLE_SECONDS: Final = 5.0  # without a cursor, until a fetcher is closed
_SECONDS_BETWEEN_NEW_ONES: Final = 5.0  # for who seeks, or rebalances, again and again
_LATE_SECONDS: Final = 1.0  # beyond the wait that was asked for, until a broker is suspected
_SILENT_SECONDS: Final = 5.0  # the same without a single byte, until its connection is given up


class _Key(NamedTuple):
    """Which fetcher: of a broker, by number, for those that came during a poll or for all."""

    node_id: int
    number: int
    express: bool = False


class _Running(NamedTuple):
    fetcher: Fetcher
    task: asyncio.Task[None]
    since: float

    @property
    def is_stuck(self) -> bool:
        """Whether another one would fetch sooner; not if that was done just now."""
        if not self.fetcher.idle_poll:
            return False
        return asyncio.get_running_loop().time() - self.since >= _SECONDS_BETWEEN_NEW_ONES


class FetcherPool:
    """Makes fetchers, and closes those that nobody needs any more."""

    def __init__(self, around: FetcherContext, fetchers_per_broker: int, scope: Scope) -> None:
        self._around = around
        self._per_broker = fetchers_per_broker
        self._scope = scope
        self._running: dict[_Key, _Running] = {}
        self._idle_since: dict[int, float] = {}  # by lane

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Fetcher]:
        return iter([one.fetcher for one in self._running.values()])

    def pause(self, cursor: Cursor, *, paused: bool) -> None:
        """Fetch nothing for it, or go on."""
        cursor.paused = paused
        if cursor.fetcher is not None:
            cursor.fetcher.refresh(cursor)

    def take_back(self, fetcher: Fetcher) -> None:
        """Give a fetcher, which is about to ask its broker, what an express fetcher has for it."""
        for key, (express, *_) in list(self._running.items()):
            usual = self._running.get(key._replace(express=False))
            if key.express and usual is not None and usual.fetcher is fetcher:
                for cursor in express.cursors:
                    express.remove(cursor)
                    fetcher.add(cursor)

    def at(self, cursor: Cursor, place: ReplicaPlacement) -> tuple[Fetcher, list[Cursor]]:
        """The fetcher to give it to, and the cursors of one that it replaces.

        A broker that moved to another address gets a new fetcher in place of the old one. So does
        one that all partitions were taken from while it waits for something to come: after a
        rebalance or a seek nobody should wait with it.
        """
        key = self._key(cursor, place)
        there = self._running.get(key)
        at_home = there is not None and there.fetcher.address == place.address
        if there is not None and at_home and not there.fetcher.polls_for_long:
            return there.fetcher, []
        if there is not None and at_home and not there.is_stuck:
            key = self._key(cursor, place, express=True)
            there = self._running.get(key)
            if there is not None and there.fetcher.address == place.address:
                return there.fetcher, []
        left = self._close(key)
        return self._start(key, place.address), left

    @property
    def last_heard(self) -> float:
        """When a broker last sent something, to any of them; -inf if none ever did."""
        open_now = (one.connection for one in self if one.connection is not None)
        return max((connection.last_heard for connection in open_now), default=-inf)

    def late(self) -> Iterator[Fetcher]:
        """Those whose broker should have answered by now; the longest silent are given up."""
        now = asyncio.get_running_loop().time()
        brokers = self._around.brokers
        allowed = self._around.config.fetch_max_wait_ms / 1000
        for fetcher in self:
            if fetcher.waiting_since is None or now - fetcher.waiting_since < (
                allowed + _LATE_SECONDS
            ):
                continue
            brokers.suspect(fetcher.address)
            connection = fetcher.connection
            if connection is not None and connection.ending is None:
                silent = now - max(connection.last_heard, fetcher.waiting_since)
                if silent >= allowed + _SILENT_SECONDS:
                    reason = f"not a byte for {silent:.1f} s"
                    connection.close(ConnectionLost(fetcher.address, reason))
            yield fetcher

    def close(self) -> None:
        """Close all, at the end."""
        for key in list(self._running):
            self._close(key)

    def close_idle(self) -> None:
        """Close those that have had no cursor for a while."""
        now = asyncio.get_running_loop().time()
        for key, (fetcher, *_) in list(self._running.items()):
            if fetcher.cursors:
                self._idle_since.pop(fetcher.lane, None)
            elif now - self._idle_since.setdefault(fetcher.lane, now) >= _IDLE_SECONDS:
                self._close(key)

    def _key(self, cursor: Cursor, place: ReplicaPlacement, *, express: bool = False) -> "_Key":
        several = self._per_broker > 1
        number = fetcher_id(*cursor.partition, self._per_broker) if several else 0
        return _Key(place.node_id, number, express)

    def _start(self, key: "_Key", address: Address) -> Fetcher:
        kind = ExpressFetcher if key.express else Fetcher
        fetcher = kind(key.node_id, address, self._around.brokers.new_lane(), self._around)
        name = f"fetch from broker {key.node_id} at {address}, {key.number}"
        task, now = self._scope.start(fetcher.run(), name), asyncio.get_running_loop().time()
        self._running[key] = _Running(fetcher, task, now)
        return fetcher

    def _close(self, key: "_Key") -> list[Cursor]:
        there = self._running.pop(key, None)
        if there is None:
            return []
        left = there.fetcher.cursors
        for cursor in left:
            there.fetcher.remove(cursor)
        there.task.cancel()
        self._idle_since.pop(there.fetcher.lane, None)
        self._around.brokers.close_lane(there.fetcher.lane)
        return left
