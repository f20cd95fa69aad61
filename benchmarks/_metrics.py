"""Consumers with and without metrics. Each runs in a process of its own, see `_child`."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from prometheus_client import generate_latest

from asyncconsumer import Consumer as Member
from asyncconsumer.fetch import fetcher
from asyncconsumer.metrics.recorder import Histogram, PartitionMeter, Recorder
from asyncconsumer.streams.delivery import Delivery
from benchmarks._child import Consumer, Figures, Watch, run_one
from benchmarks._handlers import asyncconsumer as run_handlers

_SCRAPE_SECONDS: Final = 1.0


def nothing(*_: object, **__: object) -> None:
    """Record nothing."""


@contextmanager
def without_metrics() -> Iterator[None]:
    """Replace the functions that record metrics by `nothing`, within this context."""
    with (
        patch.multiple(Recorder, count_error=nothing, count_throttled=nothing),
        patch.multiple(PartitionMeter, begin=nothing, add=nothing),
        patch.object(Histogram, "observe", nothing),
        patch.object(Delivery, "count", nothing),
        patch.object(fetcher, "first_timestamp", lambda _: -1),
    ):
        yield


async def read(
    servers: str, topic: str, *, partitions: int, count: int, scraped: bool = False
) -> Figures:
    """Read a `Consumer` with automatic commits. The time begins when it has its assignment.

    With `scraped`, all metrics are rendered each second.
    """
    async with Member(
        topic,
        bootstrap_servers=servers,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1000,
    ) as consumer:
        assert len(await consumer.wait_assigned()) == partitions
        registry = consumer.metrics.register()

        async def scrape() -> None:
            while True:
                generate_latest(registry)
                await asyncio.sleep(_SCRAPE_SECONDS)

        async with asyncio.TaskGroup() as group:
            scraping = group.create_task(scrape() if scraped else asyncio.sleep(0))
            watch, seen = Watch(), 0
            async for _record in consumer:
                seen += 1
                if seen == count:
                    break
            figures = watch.figures(seen)
            scraping.cancel()
        return figures


def unmeasured(run: Callable[..., Awaitable[Figures]]) -> Consumer:
    """Return a function that calls `run` without metrics."""

    async def unmeasured_run(servers: str, topic: str, **options: Any) -> Figures:  # noqa: ANN401
        with without_metrics():
            return await run(servers, topic, **options)

    return unmeasured_run


CONSUMERS: Final[dict[str, Consumer]] = {
    "read": read,
    "read without": unmeasured(read),
    "handlers": run_handlers,
    "handlers without": unmeasured(run_handlers),
}


if __name__ == "__main__":
    run_one(CONSUMERS)
