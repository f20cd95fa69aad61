"""The consumers of `benchmarks.options`. Each runs in a process of its own, see `_child`.

Each reads `count` records of a topic from its beginning, as the only member of a group. The clock
starts when the partitions are assigned, or with the first call of a handler.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from asyncconsumer import Consumer as Member
from asyncconsumer.consumer.interceptors import Interceptor
from asyncconsumer.handlers.handler import OrderingName
from benchmarks._child import Consumer, Figures, Watch, run_one
from benchmarks._deserializers import OPTIONS, WORK


@asynccontextmanager
async def _member(
    servers: str,
    topic: str,
    deserializer: str = "",
    **options: Any,  # noqa: ANN401 - any option
) -> AsyncIterator[Member[Any, Any]]:
    if deserializer:
        options["value_deserializer"] = OPTIONS[deserializer]
    async with Member(
        topic,
        bootstrap_servers=servers,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        **options,
    ) as consumer:
        await consumer.wait_assigned()
        yield consumer


async def each(
    servers: str,
    topic: str,
    *,
    count: int,
    intercepted: bool = False,
    limited: bool = False,
    **options: Any,  # noqa: ANN401 - checked by the consumer
) -> Figures:
    """Read with `async for`, with these options of a consumer."""
    if intercepted:
        options["interceptors"] = [Interceptor()]
    if limited:
        options["max_records"] = count
    seen = 0
    async with _member(servers, topic, **options) as consumer:
        watch = Watch()
        async for _record in consumer:
            seen += 1
            if seen == count:
                break
        return watch.figures(seen)


async def by_hand(servers: str, topic: str, *, count: int, work: str) -> Figures:
    """Read raw records with `async for`, and do the work of a deserializer in the loop."""
    deserialize = WORK[work]
    seen = 0
    async with _member(servers, topic) as consumer:
        watch = Watch()
        async for record in consumer:
            deserialize(record.value)
            seen += 1
            if seen == count:
                break
        return watch.figures(seen)


async def generator(servers: str, topic: str, *, count: int) -> Figures:
    """Read with `async for` over an async generator that yields the consumer's records."""
    seen = 0
    async with _member(servers, topic) as consumer:

        async def values() -> AsyncGenerator[bytes | None, None]:
            async for record in consumer:
                yield record.value

        watch = Watch()
        async with aclosing(values()) as generated:
            async for _value in generated:
                seen += 1
                if seen == count:
                    break
        return watch.figures(seen)


async def batches(servers: str, topic: str, *, count: int, deserializer: str = "") -> Figures:
    """Read with `async for` over batches."""
    seen = 0
    async with _member(servers, topic, deserializer) as consumer:
        watch = Watch()
        async for batch in consumer.batches():
            for _record in batch:
                seen += 1
            if seen >= count:
                break
        return watch.figures(seen)


async def getmany(servers: str, topic: str, *, count: int) -> Figures:
    """Read with calls of `getmany`."""
    seen = 0
    async with _member(servers, topic) as consumer:
        watch = Watch()
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for _record in records:
                    seen += 1
        return watch.figures(seen)


async def chunks(servers: str, topic: str, *, count: int) -> Figures:
    """Read with `async for` over chunks, and with `for` over the records of each chunk."""
    seen = 0
    async with _member(servers, topic) as consumer:
        watch = Watch()
        async for chunk in consumer.chunks():
            for _record in chunk:
                seen += 1
            if seen >= count:
                break
        return watch.figures(seen)


async def handler(
    servers: str, topic: str, *, count: int, ordering: OrderingName, parsed: bool = False
) -> Figures:
    """Run a handler that only counts."""
    from asyncconsumer import ConsumerApp

    app = ConsumerApp(
        bootstrap_servers=servers, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
    )
    finished: asyncio.Future[Figures] = asyncio.get_running_loop().create_future()
    seen = 0
    watch = Watch()

    def count_call() -> None:
        nonlocal seen, watch
        if not seen:
            watch = Watch()
        seen += 1
        if seen == count:
            finished.set_result(watch.figures(count))

    async def of_bytes(value: bytes) -> None:
        count_call()

    async def of_dict(value: dict[str, Any]) -> None:
        count_call()

    app.handler(topic, ordering=ordering, concurrency=100)(of_dict if parsed else of_bytes)
    async with app:
        return await finished


CONSUMERS: Final[dict[str, Consumer]] = {
    "async for": each,
    "by hand": by_hand,
    "generator": generator,
    "batches": batches,
    "getmany": getmany,
    "chunks": chunks,
    "handler": handler,
}


if __name__ == "__main__":
    run_one(CONSUMERS)
