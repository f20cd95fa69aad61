"""The fetcher pool. It has one fetcher for each broker and fetcher id, started on demand."""

import asyncio
from collections.abc import Iterator
from math import inf
from typing import Final, NamedTuple

from asyncconsumer.aio.scope import Scope
from asyncconsumer.fetch.cursor import Cursor, ReplicaPlacement
from asyncconsumer.fetch.fetcher import ExpressFetcher, Fetcher, FetcherContext
from asyncconsumer.protocol.java_hash import fetcher_id
from asyncconsumer.types import Address

_IDLE_SECONDS: Final = 5.0  # a fetcher without cursors is closed after this time
_SECONDS_BETWEEN_FETCHERS: Final = 5.0  # limits new fetchers when seeks or rebalances are frequent
_LATE_SECONDS: Final = 1.0  # seconds after the requested wait until a broker is suspected
# seconds without a byte after the requested wait, until the connection is closed
_SILENT_SECONDS: Final = 5.0


class _FetcherKey(NamedTuple):
    """The key of a fetcher: its broker, its fetcher id, and whether it is an express fetcher."""

    node_id: int
    number: int
    express: bool = False


class _Running(NamedTuple):
    fetcher: Fetcher
    task: asyncio.Task[None]
    since: float

    @property
    def is_stuck(self) -> bool:
        """Whether this fetcher should be replaced, so that a new cursor is fetched sooner.

        A fetcher is replaced if it has no cursors left and its long poll is still in flight. A
        fetcher that was started less than 5 s ago is not replaced, to limit the rate of new ones.
        """
        if not self.fetcher.idle_poll:
            return False
        return asyncio.get_running_loop().time() - self.since >= _SECONDS_BETWEEN_FETCHERS


class FetcherPool:
    """The running fetchers of a manager. The pool starts them on demand and closes idle ones."""

    def __init__(self, context: FetcherContext, fetchers_per_broker: int, scope: Scope) -> None:
        self._context = context
        self._per_broker = fetchers_per_broker
        self._scope = scope
        self._running: dict[_FetcherKey, _Running] = {}
        self._idle_since: dict[int, float] = {}  # time of the last cursor, by connection slot

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Fetcher]:
        return iter([running.fetcher for running in self._running.values()])

    def pause(self, cursor: Cursor, *, paused: bool) -> None:
        """Pause or resume fetching for a cursor."""
        cursor.paused = paused
        if cursor.fetcher is not None:
            cursor.fetcher.refresh(cursor)

    def take_back(self, fetcher: Fetcher) -> None:
        """Move the cursors of the express fetcher to `fetcher`, which is about to send a request.

        The express fetcher has the same broker and fetcher id. It serves cursors that were added
        during a long poll of `fetcher`. If there is none, do nothing.
        """
        for key, (express, *_) in list(self._running.items()):
            usual = self._running.get(key._replace(express=False))
            if key.express and usual is not None and usual.fetcher is fetcher:
                for cursor in express.cursors:
                    express.remove(cursor)
                    fetcher.add(cursor)

    def fetcher_for(self, cursor: Cursor, broker: ReplicaPlacement) -> tuple[Fetcher, list[Cursor]]:
        """Return the fetcher for a cursor at a broker, and the cursors of a fetcher it replaces.

        A fetcher is replaced if the broker has another address, or if it lost all cursors during a
        long poll. The caller must place the cursors of the replaced fetcher again.

        During a long poll for other cursors, an express fetcher is returned. So a rebalance or a
        seek does not wait for the end of the poll.
        """
        key = self._key(cursor, broker)
        running = self._running.get(key)
        if running is not None and running.fetcher.address == broker.address:
            if not running.fetcher.in_long_poll:
                return running.fetcher, []
            if not running.is_stuck:
                key = self._key(cursor, broker, express=True)
                running = self._running.get(key)
                if running is not None and running.fetcher.address == broker.address:
                    return running.fetcher, []
        displaced = self._close(key)
        return self._start(key, broker.address), displaced

    @property
    def last_received(self) -> float:
        """The loop time at which a broker last sent data to any fetcher, or -inf."""
        connections = (fetcher.connection for fetcher in self)
        return max((each.last_received for each in connections if each is not None), default=-inf)

    def late(self) -> Iterator[Fetcher]:
        """Yield the fetchers whose broker is overdue, and mark these brokers as suspect.

        If a broker has sent nothing for several more seconds, close the connection to it.
        """
        now = asyncio.get_running_loop().time()
        brokers = self._context.brokers
        allowed = self._context.config.fetch_max_wait_ms / 1000
        for fetcher in self:
            if fetcher.waiting_since is None or now - fetcher.waiting_since < (
                allowed + _LATE_SECONDS
            ):
                continue
            brokers.mark_suspect(fetcher.address)
            connection = fetcher.connection
            if connection is not None and connection.ending is None:
                silent = now - max(connection.last_received, fetcher.waiting_since)
                if silent >= allowed + _SILENT_SECONDS:
                    connection.close_silent(silent)
            yield fetcher

    def close(self) -> None:
        """Close all fetchers."""
        for key in list(self._running):
            self._close(key)

    def close_idle(self) -> None:
        """Close fetchers that have had no cursor for 5 s."""
        now = asyncio.get_running_loop().time()
        for key, (fetcher, *_) in list(self._running.items()):
            if fetcher.cursors:
                self._idle_since.pop(fetcher.slot, None)
            elif now - self._idle_since.setdefault(fetcher.slot, now) >= _IDLE_SECONDS:
                self._close(key)

    def _key(
        self, cursor: Cursor, broker: ReplicaPlacement, *, express: bool = False
    ) -> "_FetcherKey":
        several = self._per_broker > 1
        number = fetcher_id(*cursor.partition, self._per_broker) if several else 0
        return _FetcherKey(broker.node_id, number, express)

    def _start(self, key: "_FetcherKey", address: Address) -> Fetcher:
        kind = ExpressFetcher if key.express else Fetcher
        fetcher = kind(key.node_id, address, self._context.brokers.new_slot(), self._context)
        name = f"fetch from broker {key.node_id} at {address}, {key.number}"
        task, now = self._scope.start(fetcher.run(), name), asyncio.get_running_loop().time()
        self._running[key] = _Running(fetcher, task, now)
        return fetcher

    def _close(self, key: "_FetcherKey") -> list[Cursor]:
        running = self._running.pop(key, None)
        if running is None:
            return []
        fetcher = running.fetcher
        cursors = fetcher.cursors
        for cursor in cursors:
            fetcher.remove(cursor)
        running.task.cancel()
        self._idle_since.pop(fetcher.slot, None)
        self._context.brokers.close_slot(fetcher.slot)
        return cursors
