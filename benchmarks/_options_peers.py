"""The other clients of `benchmarks.options`. Each runs in a process of its own, see `_child`.

Each reads `count` records of a topic from its beginning, as the only member of a group. The clock
starts when the partitions are assigned, or with the first call of a handler.
"""

import asyncio
import uuid
from typing import Any, Final

from benchmarks._child import Consumer, Figures, Watch, run_one
from benchmarks._deserializers import WORK


async def confluent_consume(servers: str, topic: str, *, count: int, work: str = "") -> Figures:
    """Read with `consume` in batches, with its fastest setting, and do the work in the loop."""
    from confluent_kafka import Consumer as Confluent

    deserialize = WORK.get(work)
    consumer = Confluent(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 1,
        }
    )
    watch = Watch()

    def on_assign(_consumer: object, _partitions: object) -> None:
        nonlocal watch
        watch = Watch()

    consumer.subscribe([topic], on_assign=on_assign)
    seen = 0
    while seen < count:
        if deserialize is None:
            for _message in consumer.consume(10_000, 1.0):
                seen += 1
        else:
            for message in consumer.consume(10_000, 1.0):
                deserialize(message.value())
                seen += 1
    figures = watch.figures(seen)
    consumer.close()
    return figures


def _aiokafka(servers: str, topic: str, deserializer: str) -> Any:  # noqa: ANN401 - untyped
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        value_deserializer=WORK.get(deserializer),
    )


async def aiokafka_each(servers: str, topic: str, *, count: int, deserializer: str = "") -> Figures:
    """Read with `async for`, as the documentation of aiokafka shows it."""
    seen = 0
    async with _aiokafka(servers, topic, deserializer) as consumer:
        watch = Watch()
        async for _record in consumer:
            seen += 1
            if seen == count:
                break
        return watch.figures(seen)


async def aiokafka_getmany(
    servers: str, topic: str, *, count: int, deserializer: str = ""
) -> Figures:
    """Read with `getmany` and its default fetch sizes."""
    seen = 0
    async with _aiokafka(servers, topic, deserializer) as consumer:
        watch = Watch()
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for _record in records:
                    seen += 1
        return watch.figures(seen)


async def faststream(servers: str, topic: str, *, count: int) -> Figures:
    """Run a handler that only counts. It gets a dict, because faststream parses JSON values."""
    from faststream import FastStream
    from faststream.kafka import KafkaBroker

    broker = KafkaBroker(servers, logger=None)
    app = FastStream(broker, logger=None)
    finished: asyncio.Future[Figures] = asyncio.get_running_loop().create_future()
    seen = 0
    watch = Watch()

    @broker.subscriber(  # type: ignore[untyped-decorator, unused-ignore] # unless it is installed
        topic, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
    )
    async def handle(body: dict[str, Any]) -> None:
        nonlocal seen, watch
        if not seen:
            watch = Watch()
        seen += 1
        if seen == count:
            finished.set_result(watch.figures(count))

    await app.start()
    figures = await finished
    await app.stop()
    return figures


PEERS: Final[dict[str, Consumer]] = {
    "confluent consume": confluent_consume,
    "aiokafka async for": aiokafka_each,
    "aiokafka getmany": aiokafka_getmany,
    "faststream handler": faststream,
}


if __name__ == "__main__":
    run_one(PEERS)
