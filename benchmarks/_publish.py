"""The contenders of `benchmarks.publish`. Each runs in a process of its own, see `_child`.

Each reads `count` records of a topic, from its beginning, as a member of a group that commits. For
each record it writes a result with the same key to another topic. A record is committed after all
in-sync replicas have acknowledged its result. The clock runs from the first call of the handler to
the last acknowledgement.
"""

import asyncio
import uuid
from typing import Final

from benchmarks._child import Consumer, Figures, Watch, run_one


def transform(value: bytes) -> bytes:
    return value[::-1]


def group() -> str:
    return f"bench-{uuid.uuid4()}"


async def asyncconsumer(
    servers: str,
    topic: str,
    *,
    count: int,
    output: str,
    concurrency: int,
    exactly_once: bool = False,
) -> Figures:
    from asyncconsumer import ConsumerApp

    watch: Watch | None = None
    remaining, begun = count, asyncio.Event()
    app = ConsumerApp(
        bootstrap_servers=servers,
        group_id=group(),
        auto_offset_reset="earliest",
        exactly_once=exactly_once,
    )

    @app.handler(topic, publish=output, concurrency=concurrency)
    async def handle(value: bytes) -> bytes:
        nonlocal watch, remaining
        if watch is None:
            watch = Watch()
        remaining -= 1
        if not remaining:
            begun.set()
        return transform(value)

    async with app:
        await begun.wait()
        await app.drain()  # returns when all results are acknowledged
        assert watch is not None
        return watch.figures(count)


async def asyncconsumer_batch(
    servers: str, topic: str, *, count: int, output: str, batch: int
) -> Figures:
    from asyncconsumer import Batch, ConsumerApp

    watch: Watch | None = None
    remaining, begun = count, asyncio.Event()
    app = ConsumerApp(bootstrap_servers=servers, group_id=group(), auto_offset_reset="earliest")

    @app.handler(topic, publish=output, concurrency=4, ordering="none", batch=Batch(batch))
    async def handle(values: list[bytes]) -> list[bytes]:
        nonlocal watch, remaining
        if watch is None:
            watch = Watch()
        remaining -= len(values)
        if remaining <= 0:
            begun.set()
        return [transform(value) for value in values]

    async with app:
        await begun.wait()
        await app.drain()
        assert watch is not None
        return watch.figures(count)


async def aiokafka_loop(servers: str, topic: str, *, count: int, output: str) -> Figures:
    """Send the results of all records that one `getmany` returned, wait for them, and commit."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    watch: Watch | None = None
    remaining = count
    async with (
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group(),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer,
    ):
        while remaining > 0:
            records = await consumer.getmany(timeout_ms=1000)
            if watch is None and records:
                watch = Watch()
            sent = [
                await producer.send(output, transform(record.value), key=record.key)
                for batch in records.values()
                for record in batch
            ]
            for delivery in sent:
                await delivery
            await consumer.commit()
            remaining -= len(sent)
        assert watch is not None
        return watch.figures(count - remaining)


async def aiokafka_transactions(servers: str, topic: str, *, count: int, output: str) -> Figures:
    """Write the results of all records that one `getmany` returned, and their offsets, at once."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    watch: Watch | None = None
    remaining, group_id = count, group()
    async with (
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        AIOKafkaProducer(bootstrap_servers=servers, transactional_id=group_id) as producer,
    ):
        while remaining > 0:
            records = await consumer.getmany(timeout_ms=1000)
            if not records:
                continue
            if watch is None:
                watch = Watch()
            async with producer.transaction():
                for batch in records.values():
                    for record in batch:
                        await producer.send(output, transform(record.value), key=record.key)
                    remaining -= len(batch)
                offsets = {tp: batch[-1].offset + 1 for tp, batch in records.items()}
                await producer.send_offsets_to_transaction(offsets, group_id)
        assert watch is not None
        return watch.figures(count - remaining)


async def faststream(
    servers: str, topic: str, *, count: int, output: str, max_workers: int
) -> Figures:
    """Run a subscriber of faststream that publishes.

    With several workers it keeps no order, and commits before the result is written.
    """
    from faststream import FastStream
    from faststream.kafka import KafkaBroker

    watch: Watch | None = None
    remaining, done = count, asyncio.Event()
    broker = KafkaBroker(servers, logger=None)
    app = FastStream(broker, logger=None)

    @broker.subscriber(  # type: ignore[untyped-decorator, unused-ignore] # unless it is installed
        topic, group_id=group(), auto_offset_reset="earliest", max_workers=max_workers
    )
    @broker.publisher(output)  # type: ignore[untyped-decorator, unused-ignore]
    async def handle(body: bytes) -> bytes:
        nonlocal watch, remaining
        if watch is None:
            watch = Watch()
        remaining -= 1
        if not remaining:
            done.set()
        return transform(body)

    await app.start()
    await done.wait()
    assert watch is not None
    figures = watch.figures(count)
    await app.stop()
    return figures


CONTENDERS: Final[dict[str, Consumer]] = {
    "asyncconsumer": asyncconsumer,
    "asyncconsumer-batch": asyncconsumer_batch,
    "aiokafka": aiokafka_loop,
    "aiokafka-transactions": aiokafka_transactions,
    "faststream": faststream,
}


if __name__ == "__main__":
    run_one(CONTENDERS)
