"""Consumers of other clients for `benchmarks.throughput`, each in a process of its own.

`python -m benchmarks._peers NAME SERVERS TOPIC COUNT` reads COUNT records of a topic from its
beginning, and prints the figures as one line of JSON. The clock starts after the imports and before
the client is created.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final


def tell(count: int, started: float, cpu_before: float) -> None:
    """Print the time, the CPU time and the peak memory of a run.

    `started` and `cpu_before` are the clocks at its start.
    """
    seconds = time.perf_counter() - started
    # `ru_maxrss` would include the memory that the parent process had when it forked
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    cpu = time.process_time() - cpu_before
    print(json.dumps({"records": count, "seconds": seconds, "cpu": cpu, "rss_mb": peak}))


async def aiokafka_for(servers: str, topic: str, count: int, *, touch: bool = False) -> None:
    """Read with `async for`, as the documentation of aiokafka shows it."""
    from aiokafka import AIOKafkaConsumer

    started, cpu = time.perf_counter(), time.process_time()
    seen = 0
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            if touch:
                record.key
                record.value
                record.offset
                record.timestamp
                record.partition
            seen += 1
            if seen == count:
                break
    tell(seen, started, cpu)


async def aiokafka_many(servers: str, topic: str, count: int, *, touch: bool = False) -> None:
    """Read with `getmany` and its default fetch sizes, which are its fastest setting."""
    from aiokafka import AIOKafkaConsumer

    started, cpu = time.perf_counter(), time.process_time()
    seen = 0
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    if touch:
                        record.key
                        record.value
                        record.offset
                        record.timestamp
                        record.partition
                    seen += 1
    tell(seen, started, cpu)


def _confluent_settings(servers: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "group.id": f"bench-{time.monotonic_ns()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 1,
    }


async def confluent_consume(servers: str, topic: str, count: int, *, touch: bool = False) -> None:
    """Read with `consume` in batches, with the setting that makes it fast."""
    from confluent_kafka import Consumer

    started, cpu = time.perf_counter(), time.process_time()
    consumer = Consumer(_confluent_settings(servers))
    consumer.subscribe([topic])
    seen = 0
    while seen < count:
        for message in consumer.consume(10_000, 1.0):
            if touch:
                message.key()
                message.value()
                message.offset()
                message.timestamp()
                message.partition()
            seen += 1
    tell(seen, started, cpu)
    consumer.close()


async def confluent_aio(servers: str, topic: str, count: int) -> None:
    """Read with `AIOConsumer.consume`, with the settings of `confluent_consume`."""
    from confluent_kafka.aio import AIOConsumer

    started, cpu = time.perf_counter(), time.process_time()
    consumer = AIOConsumer(_confluent_settings(servers))
    await consumer.subscribe([topic])
    seen = 0
    while seen < count:
        for _ in await consumer.consume(10_000, 1.0):
            seen += 1
    tell(seen, started, cpu)
    await consumer.close()


async def kafka_python(servers: str, topic: str, count: int) -> None:
    """Read with the iterator of kafka-python."""
    from kafka import KafkaConsumer

    started, cpu = time.perf_counter(), time.process_time()
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    for seen, _ in enumerate(consumer, start=1):
        if seen == count:
            break
    tell(count, started, cpu)
    consumer.close()


PEERS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "aiokafka async for": aiokafka_for,
    "aiokafka async for, touched": lambda *args: aiokafka_for(*args, touch=True),
    "aiokafka getmany": aiokafka_many,
    "aiokafka getmany, touched": lambda *args: aiokafka_many(*args, touch=True),
    "confluent consume": confluent_consume,
    "confluent consume, touched": lambda *args: confluent_consume(*args, touch=True),
    "confluent AIO consume": confluent_aio,
    "kafka-python": kafka_python,
}


def run_one(consumers: Mapping[str, Callable[..., Awaitable[None]]]) -> None:
    """Run the consumer that the command line names."""
    name, servers, topic, count = sys.argv[1:]

    async def run() -> None:
        await consumers[name](servers, topic, int(count))

    asyncio.run(run())


if __name__ == "__main__":
    run_one(PEERS)
