"""The consumers of `benchmarks.compat`. Each runs in a process of its own, see `_child`.

Both libraries run the same functions, so only the import differs. Each reads `count` records of a
topic from its beginning, as the only member of a group. The clock starts with the first record.
"""

import uuid
from typing import Any, Final

from benchmarks._child import Consumer, Figures, Watch, run_one


def _consumer(library: str, servers: str, topic: str) -> Any:  # noqa: ANN401 - of two libraries
    if library == "aiokafka":
        from aiokafka import AIOKafkaConsumer
    else:
        from asyncconsumer.compat.aiokafka import AIOKafkaConsumer
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
    )


async def loop(servers: str, topic: str, *, count: int, library: str) -> Figures:
    """Read with `async for`, and read the key, the value and the offset of each record."""
    async with _consumer(library, servers, topic) as consumer:
        await consumer.getone()
        watch, seen = Watch(), 0
        async for record in consumer:
            record.key, record.value, record.offset
            seen += 1
            if seen == count:
                break
        return watch.figures(seen)


async def getmany(servers: str, topic: str, *, count: int, library: str) -> Figures:
    """Read with `getmany`, and read the key, the value and the offset of each record."""
    async with _consumer(library, servers, topic) as consumer:
        await consumer.getone()
        watch, seen = Watch(), 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    record.key, record.value, record.offset
                seen += len(records)
        return watch.figures(seen)


async def getone(servers: str, topic: str, *, count: int, library: str) -> Figures:
    """Read with `getone`, and read the key, the value and the offset of each record."""
    async with _consumer(library, servers, topic) as consumer:
        await consumer.getone()
        watch = Watch()
        for _ in range(count):
            record = await consumer.getone()
            record.key, record.value, record.offset
        return watch.figures(count)


CONSUMERS: Final[dict[str, Consumer]] = {"async for": loop, "getmany": getmany, "getone": getone}


if __name__ == "__main__":
    run_one(CONSUMERS)
