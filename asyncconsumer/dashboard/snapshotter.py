"""The polling of a cluster for all clients of a dashboard. Without clients there is none."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Final

from asyncconsumer.admin.admin import Admin
from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.clock import loop_time
from asyncconsumer.aio.scope import Scope
from asyncconsumer.dashboard.collector import ClusterCollector
from asyncconsumer.dashboard.model import ClusterSnapshot, LagPoint
from asyncconsumer.errors import ConsumerError, brief

POLL_SECONDS: Final = 15.0
"""The longest time of one poll."""

_MAX_DELAY: Final = 5.0  # seconds between attempts to reach the cluster

AdminFactory = Callable[[], Admin]


class Snapshotter:
    """A poller of one cluster, which has at most one poll in flight.

    Each client is within a block of `connected`. A task of one client polls for all clients. When
    that client leaves, a task of another one continues. After the last client has left, the
    connections to the cluster are closed.

    The pause after a poll is at least `interval` and at least the duration of the poll. A failed
    poll is published as the last state with an error, and the connections are opened again.
    """

    def __init__(self, collector: ClusterCollector, admin: AdminFactory | None) -> None:
        self._collector = collector
        self._admin = admin
        self._polled = False  # whether a client polls now
        self._closed = False
        self._latest: ClusterSnapshot | None = None
        self._version = 0
        self._received: float | None = None  # monotonic time of the last successful poll
        self._changed = asyncio.Event()  # replaced after each change

    def history(self) -> dict[str, list[LagPoint]]:
        """Return the recent lag and rates of each group, the oldest first."""
        return self._collector.history()

    @property
    def is_polling(self) -> bool:
        """Whether a client is connected, so that the cluster is polled."""
        return self._polled

    def close(self) -> None:
        """End the iterations of all clients."""
        self._closed = True
        self._wake()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[AsyncIterator[ClusterSnapshot]]:
        """Return an async context manager for a client. It yields an iterator over snapshots.

        The iterator starts with the newest snapshot. The polls continue during the block. A client
        that is slow skips snapshots.
        """
        async with Scope("dashboard client") as scope:
            scope.start(self._take_turns(), "poll")
            async with aclosing(self._updates()) as updates:
                yield updates

    async def _updates(self) -> AsyncGenerator[ClusterSnapshot]:
        seen = 0
        while not self._closed:
            changed = self._changed
            if self._latest is not None and self._version > seen:
                seen = self._version
                yield self._latest
            else:
                await changed.wait()

    async def _take_turns(self) -> None:
        """Poll for all clients until closed, but only while no other client does."""
        while not self._closed:
            changed = self._changed
            if self._polled:
                await changed.wait()
                continue
            self._polled = True
            try:
                await self._poll_until_closed()
            finally:
                self._polled = False
                self._wake()

    async def _poll_until_closed(self) -> None:
        delays = backoff(self._collector.interval, _MAX_DELAY, Random())  # noqa: S311 - jitter
        while not self._closed:
            before = self._received
            try:
                if self._admin is None:
                    await self._poll(None)
                else:
                    async with self._admin() as admin:
                        await self._poll(admin)
            except (ConsumerError, TimeoutError, OSError) as error:
                self._publish_failure(error)
            if self._received != before:
                delays = backoff(self._collector.interval, _MAX_DELAY, Random())  # noqa: S311
            await asyncio.sleep(next(delays))

    async def _poll(self, admin: Admin | None) -> None:
        while not self._closed:
            began = loop_time()
            async with asyncio.timeout(POLL_SECONDS):
                if admin is None:
                    snapshot = self._collector.without_cluster()
                else:
                    snapshot = await self._collector.poll(admin)
            self._received = loop_time()
            self._publish(snapshot)
            await asyncio.sleep(max(self._collector.interval, self._received - began))

    def _publish_failure(self, error: Exception) -> None:
        if isinstance(error, TimeoutError):
            text = f"The cluster did not answer within {POLL_SECONDS:g} s"
        else:
            text = brief(error)
        latest = self._latest or self._collector.without_cluster()
        age = None if self._received is None else round(loop_time() - self._received, 1)
        self._publish(self._collector.outdated(latest, text, age))

    def _publish(self, snapshot: ClusterSnapshot) -> None:
        self._version += 1
        self._latest = replace(snapshot, version=self._version)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
