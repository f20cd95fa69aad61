"""Topics with the records to consume. They are filled once, in large batches."""

import functools
import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError
from asyncconsumer.net.connect import open_connection
from asyncconsumer.testing.servers import Kafka

_CUSTOMERS: Final = 1000
_BATCH_BYTES: Final = 512 * 1024
_PATIENCE: Final = 300.0  # seconds; long, because all partitions are written over one connection


class Load(NamedTuple):
    """The records of a topic: their number, the function of their values, codec and partitions."""

    name: str
    records: int
    value: Callable[[int], bytes]
    codec: str = "none"
    partitions: int = 1

    @property
    def topic(self) -> str:
        """The name of the topic, which has only characters that Kafka allows."""
        return "".join(char if char.isalnum() else "-" for char in self.name)


def plain(number: int) -> bytes:
    """Return a value of 100 bytes."""
    return b"%0100d" % number


def json_like(number: int) -> bytes:
    """Return a value of about 100 bytes of JSON, which compresses as real events do."""
    amount = number * 2654435761 % 2**32
    return (
        b'{"order": %d, "customer": "customer-%d", "amount": %d, "currency": "EUR", "open": true}'
        % (number, number % _CUSTOMERS, amount)
    )


_NOISE: Final = random.Random(0).randbytes(64 * 1024)


def kilobyte(number: int) -> bytes:
    """Return a value of 1 KB, half of which is random."""
    offset = number * 97 % (len(_NOISE) - 512)
    return b"%0512d" % number + _NOISE[offset : offset + 512]


async def fill(kafka: Kafka, load: Load) -> int:
    """Create the topic and fill it with confluent's producer. Return the bytes of all values."""
    from confluent_kafka import Producer

    from benchmarks._producing import produce

    await kafka.admin.create_topic(load.topic, partitions=load.partitions)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.codec": load.codec,
            "linger.ms": 100,
            "batch.size": _BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    size = 0
    for number in range(load.records):
        value = load.value(number)
        size += len(value)
        key, partition = b"key-%06d" % (number % _CUSTOMERS), number % load.partitions
        produce(producer, load.topic, value, key, partition)
    producer.flush()
    return size


async def fill_with_copies(kafka: Kafka, load: Load) -> None:
    """Create the topic and fill it with copies of one batch, which is faster than a producer."""
    await kafka.admin.create_topic(load.topic, partitions=load.partitions)
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    connection = await open_connection(config.addresses[0], config)
    limit = _BATCH_BYTES // (len(load.value(0)) + 20)
    made = functools.cache(functools.partial(_batch, load))

    async def send_all(partition: int) -> None:
        remaining = len(range(partition, load.records, load.partitions))
        while remaining:
            size = min(remaining, limit)
            remaining -= size
            rows = [(load.topic, [(partition, made(size))])]
            request = ProduceRequest(None, 1, 30_000, rows)
            answer = await connection.request(request, timeout=_PATIENCE)
            if error := answer.to_object()["topics"][0]["partitions"][0]["error_code"]:
                raise BrokerError.from_code(error, load.topic)

    await for_each(range(load.partitions), send_all)
    connection.close()
    await connection.wait_closed()


def _batch(load: Load, size: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2 * _BATCH_BYTES,
    )
    now = time.time_ns() // 1_000_000
    for number in range(size):
        builder.append(number, now, b"key-%06d" % (number % _CUSTOMERS), load.value(number), [])
    return bytes(builder.build())
