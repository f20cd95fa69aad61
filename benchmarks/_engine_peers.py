"""The other clients in the cases of `benchmarks.engine`, with manually assigned partitions."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from benchmarks._child import Consumer, Delays, Figures, Watch, memory, run_one

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer


@asynccontextmanager
async def aiokafka(servers: str, topic: str, partitions: int) -> "AsyncIterator[AIOKafkaConsumer]":
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        yield consumer


@contextmanager
def confluent(servers: str, topic: str, partitions: int) -> Iterator[Any]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    )
    try:
        yield consumer
    finally:
        consumer.close()


async def aiokafka_idle(
    servers: str, topic: str, *, partitions: int, settle: float, seconds: float
) -> Figures:
    async with aiokafka(servers, topic, partitions) as consumer:
        await consumer.getmany(timeout_ms=int(settle * 1000))
        cpu = time.process_time()
        await consumer.getmany(timeout_ms=int(seconds * 1000))
        cpu = time.process_time() - cpu
    return {"cpu_percent": cpu / seconds * 100, "peak_rss_mb": memory("VmHWM")}


async def confluent_idle(
    servers: str, topic: str, *, partitions: int, settle: float, seconds: float
) -> Figures:
    with confluent(servers, topic, partitions) as consumer:
        consumer.poll(settle)
        cpu = time.process_time()
        consumer.poll(seconds)
        cpu = time.process_time() - cpu
    return {"cpu_percent": cpu / seconds * 100, "peak_rss_mb": memory("VmHWM")}


async def aiokafka_latency(servers: str, topic: str) -> Figures:
    delays = Delays()
    async with aiokafka(servers, topic, 1) as consumer:
        async for record in consumer:
            if not delays.arrived(record.value):
                break
    return delays.figures()


async def confluent_latency(servers: str, topic: str) -> Figures:
    """Read with the blocking `poll`, which is faster than the client's asyncio interface."""
    delays = Delays()
    with confluent(servers, topic, 1) as consumer:
        while True:
            message = consumer.poll(1.0)
            if message is not None and not message.error() and not delays.arrived(message.value()):
                break
    return delays.figures()


async def aiokafka_start(servers: str, topic: str, *, partitions: int) -> Figures:
    import aiokafka as imported

    assert imported.__version__  # imported before the clock starts
    watch = Watch()
    async with aiokafka(servers, topic, partitions) as consumer:
        await consumer.getone()
        return _started(watch)


async def confluent_start(servers: str, topic: str, *, partitions: int) -> Figures:
    import confluent_kafka as imported

    assert imported.__version__  # imported before the clock starts
    watch = Watch()
    with confluent(servers, topic, partitions) as consumer:
        while (message := consumer.poll(1.0)) is None or message.error():
            pass
        return _started(watch)


def _started(watch: Watch) -> Figures:
    taken = watch.figures(1)
    return {"ms": 1e3 / taken["records_per_s"], "cpu_ms": taken["cpu_s_per_million"] / 1e3}


PEERS: Final[dict[str, Consumer]] = {
    "aiokafka idle": aiokafka_idle,
    "confluent idle": confluent_idle,
    "aiokafka latency": aiokafka_latency,
    "confluent latency": confluent_latency,
    "aiokafka start": aiokafka_start,
    "confluent start": confluent_start,
}


if __name__ == "__main__":
    run_one(PEERS)
