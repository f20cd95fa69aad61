"""Consumers of asyncconsumer for `benchmarks.throughput`, each in a process of its own.

`python -m benchmarks._asyncconsumer NAME SERVERS TOPIC COUNT` runs one of them and prints its
figures, as `benchmarks._peers` does for other clients.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Final

from asyncconsumer import SimpleConsumer
from benchmarks._peers import run_one, tell


async def each(servers: str, topic: str, count: int, *, touch: bool = False) -> None:
    """Read with `async for` over records. With `touch`, read the fields of each record."""
    started, cpu = time.perf_counter(), time.process_time()
    seen = 0
    async with SimpleConsumer(servers) as consumer:
        if touch:
            async for record in consumer.read(topic, 0):
                record.key
                record.value
                record.offset
                record.timestamp
                record.partition
                seen += 1
                if seen == count:
                    break
        else:
            async for _record in consumer.read(topic, 0):
                seen += 1
                if seen == count:
                    break
    tell(seen, started, cpu)


async def chunks(servers: str, topic: str, count: int) -> None:
    """Read with `async for` over chunks, and with `for` over the records of each chunk."""
    started, cpu = time.perf_counter(), time.process_time()
    seen = 0
    async with SimpleConsumer(servers) as consumer:
        async for chunk in consumer.read(topic, 0).chunks():
            for _record in chunk:
                seen += 1
            if seen >= count:
                break
    tell(seen, started, cpu)


async def arrow(servers: str, topic: str, count: int, *, copy: bool) -> None:
    """Read Arrow batches."""
    import pyarrow as pa

    assert pa.__version__  # imported before the clock starts
    started, cpu = time.perf_counter(), time.process_time()
    seen = 0
    async with SimpleConsumer(servers) as consumer:
        async for batch in consumer.read(topic, 0).arrow(copy=copy):
            seen += batch.num_rows
            if seen >= count:
                break
    tell(seen, started, cpu)


async def many(servers: str, topic: str, count: int) -> None:
    """Read with `async for` over one stream of the fetch engine, which has all partitions."""
    # imported here, because it would add to the memory of the other consumers
    from benchmarks._engine_asyncconsumer import engine, stream

    started, cpu = time.perf_counter(), time.process_time()
    seen = 0
    async with SimpleConsumer(servers) as consumer:
        partitions = len(await consumer.partitions(topic))
    async with engine(servers) as manager:
        async for _record in stream(manager, topic, partitions):
            seen += 1
            if seen == count:
                break
    tell(seen, started, cpu)


async def raw(servers: str, topic: str, count: int) -> None:
    """Read frames from a blocking socket and drop them, which is the limit of all consumers."""
    from benchmarks._raw import read_and_drop

    await read_and_drop(servers, topic, count)


CONSUMERS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "async for": each,
    "async for, touched": lambda *args: each(*args, touch=True),
    "async for, pure": each,  # an environment variable selects the pure Python decoder
    "chunks": chunks,
    "Arrow, copied": lambda *args: arrow(*args, copy=True),
    "Arrow, views": lambda *args: arrow(*args, copy=False),
    "stream of all partitions": many,
    "raw socket": raw,
}


if __name__ == "__main__":
    run_one(CONSUMERS)
