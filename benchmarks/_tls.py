"""Consumers over TLS. Each runs in a process of its own, on a broker that Java optimizes fully.

The argument `authority` is the file of the certificate authority. Without it a consumer connects in
plaintext.
"""

import ssl
import uuid
from functools import partial
from typing import Any, Final

from asyncconsumer import SimpleConsumer
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.testing.servers.listeners import INTERNAL, TLS
from benchmarks._child import Consumer, Figures, Watch, figures, run_one
from benchmarks._harness import note
from benchmarks._promises import CPU, Case, Found, Promise, measure
from benchmarks._topics import Load, fill_with_copies, kilobyte, plain

ASYNC_FOR, UVLOOP, CONFLUENT = "async for", "async for, uvloop", "confluent consume"
PLAINTEXT: Final = "async for, plaintext"
LOADS: Final = {
    "TLS 100 B": Load("TLS 100 B", 2_000_000, plain),
    "TLS 1 KB": Load("TLS 1 KB", 500_000, kilobyte),
}
PROMISED: Final = {"TLS 100 B": 4.0, "TLS 1 KB": 1.7}


async def read(servers: str, topic: str, *, count: int, authority: str) -> Figures:
    """Read one partition with `async for`."""
    security: dict[str, Any] = {}
    if authority:
        context = ssl.create_default_context(cafile=authority)
        security = {"security_protocol": "SSL", "ssl_context": context}
    watch = Watch()
    seen = 0
    async with SimpleConsumer(servers, **security) as consumer:
        async for _record in consumer.read(topic, 0):
            seen += 1
            if seen == count:
                break
    return watch.figures(seen)


async def confluent(servers: str, topic: str, *, count: int, authority: str) -> Figures:
    """Read with `consume` in batches, with its fastest setting."""
    from confluent_kafka import Consumer as Confluent
    from confluent_kafka import TopicPartition

    watch = Watch()
    consumer = Confluent(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "fetch.queue.backoff.ms": 1,
            "security.protocol": "SSL",
            "ssl.ca.location": authority,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < count:
        for _message in consumer.consume(10_000, 1.0):
            seen += 1
    taken = watch.figures(seen)
    consumer.close()
    return taken


CONSUMERS: Final[dict[str, Consumer]] = {
    ASYNC_FOR: read,
    UVLOOP: read,
    PLAINTEXT: read,
    CONFLUENT: confluent,
}


async def compare(name: str, records: int | None, rounds: int) -> Found:
    """Measure the consumers with one load. A first round, for Java's compiler, does not count."""
    load = LOADS[name]._replace(records=records or LOADS[name].records)
    async with Kafka(listeners=[TLS], full_jit=True) as kafka:
        note(f"{name}: filling {load.records:,} records ...")
        await fill_with_copies(kafka, load)
        assert kafka.certificates is not None
        runs = {}
        for consumer in CONSUMERS:
            secure = consumer != PLAINTEXT
            runs[consumer] = partial(
                figures,
                "benchmarks._tls",
                consumer,
                kafka.addresses(TLS if secure else INTERNAL),
                load.topic,
                count=load.records,
                authority=str(kafka.certificates.authority_file) if secure else "",
            )
        promises = [
            Promise(contender, CONFLUENT, CPU, PROMISED[name]) for contender in (ASYNC_FOR, UVLOOP)
        ]
        await measure(f"{name}, warming up", Case(runs, [], 1))
        return await measure(name, Case(runs, promises, rounds))


if __name__ == "__main__":
    run_one(CONSUMERS)
