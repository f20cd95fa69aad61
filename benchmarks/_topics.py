"""Topics to consume: filled once a run, by confluent's producer, in large batches."""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from asyncconsumer.testing.servers import Kafka

_CUSTOMERS: Final = 1000


class Load(NamedTuple):
    """What a topic is filled with."""

    name: str
    records: int
    value: Callable[[int], bytes]
    codec: str = "none"
    partitions: int = 1

    @property
    def topic(self) -> str:
        """A name that Kafka takes."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)


def plain(number: int) -> bytes:
    """100 bytes."""
    return b"%0100d" % number


def json_like(number: int) -> bytes:
    """About 100 bytes with some structure and some noise, as events have them."""
    amount = number * 2654435761 % 2**32
    return (
        b'{"order": %d, "customer": "customer-%d", "amount": %d, "currency": "EUR", "open": true}'
        % (number, number % _CUSTOMERS, amount)
    )


_NOISE: Final = random.Random(0).randbytes(64 * 1024)


def kilobyte(number: int) -> bytes:
    """1 KB, half of it noise."""
    at = number * 97 % (len(_NOISE) - 512)
    return b"%0512d" % number + _NOISE[at : at + 512]


async def fill(kafka: Kafka, load: Load) -> int:
    """Create the topic and fill it; the size of all values in bytes."""
    from confluent_kafka import Producer

    await kafka.admin.create_topic(load.topic, partitions=load.partitions)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.codec": load.codec,
            "linger.ms": 100,
            "batch.size": 512 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    size = 0
    for number in range(load.records):
        value = load.value(number)
        size += len(value)
        key, partition = b"key-%06d" % (number % _CUSTOMERS), number % load.partitions
        while True:
            try:
                producer.produce(load.topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return size
