"""The sending of many records at once, without a delivery for each of them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

from asyncconsumer.errors import UnknownTopicOrPartition
from asyncconsumer.producer.batch import ProducerBatch
from asyncconsumer.producer.partitioner import TopicPartitioner
from asyncconsumer.producer.producer import Producer
from asyncconsumer.records.record import Headers
from asyncconsumer.types import TopicPartition

BulkRecord: TypeAlias = tuple[str, bytes | None, bytes | None, Headers, int | None]
"""Topic, key, value, headers and partition of a record to send."""

_CHUNK: Final = 1_000  # records between two checks of the limit of the buffer
_Groups: TypeAlias = dict[TopicPartition, list[tuple[bytes | None, bytes | None, Headers]]]


class BulkDelivery:
    """The common delivery of many records. Await `wait` for their result."""

    def __init__(self) -> None:
        self._batches: dict[ProducerBatch, None] = {}

    def add(self, batches: Iterable[ProducerBatch]) -> None:
        """Add batches, so that `wait` waits for their records as well."""
        self._batches.update(dict.fromkeys(batches))

    async def wait(self) -> None:
        """Wait until all records are written or have failed. Raise the first record's error."""
        for batch in self._batches:
            await batch.wait()
        for batch in self._batches:
            if (error := batch.first_error()) is not None:
                raise error


async def send_bulk(producer: Producer[Any, Any], records: Iterable[BulkRecord]) -> BulkDelivery:
    """Add serialized records to batches of the producer, and return their common delivery.

    Calling `Producer.send` for each record would take four times as long. Like `send`, this waits
    for room in the buffer and for the partitions of new topics.
    """
    delivery, remaining = BulkDelivery(), iter(records)
    while chunk := list(islice(remaining, _CHUNK)):
        partitioners = {
            topic: await producer._find_partitions(topic)  # noqa: SLF001 - of the same package
            for topic in {record[0] for record in chunk}
        }
        if producer._buffer.is_full:  # noqa: SLF001
            await producer._buffer.wait_room()  # noqa: SLF001
        delivery.add(_append(producer, _grouped(chunk, partitioners)))
    return delivery


def _grouped(records: Iterable[BulkRecord], partitioners: dict[str, TopicPartitioner]) -> _Groups:
    """Return the records by the partition to which they are written.

    All records of a topic that have neither a key nor a partition get the same partition.
    """
    groups: dict[tuple[str, int], list[Any]] = defaultdict(list)
    sticky = {topic: partitioner.move_on() for topic, partitioner in partitioners.items()}
    of_key = {topic: partitioner.of_key for topic, partitioner in partitioners.items()}
    for topic, key, value, headers, partition in records:
        if partition is None:
            number = sticky[topic] if key is None else of_key[topic](key)
        elif partition in partitioners[topic].topic.partitions:
            number = partition
        else:
            raise UnknownTopicOrPartition(f"{topic}[{partition}]")
        groups[topic, number].append((key, value, headers))
    return {TopicPartition(*place): group for place, group in groups.items()}


def _append(producer: Producer[Any, Any], groups: _Groups) -> Iterator[ProducerBatch]:
    """Append records to the batches of their partitions. Yield these batches."""
    sender, buffer = producer._sender, producer._buffer  # noqa: SLF001
    if producer._transactions is not None:  # noqa: SLF001
        producer._transactions.check_open()  # noqa: SLF001
    timestamp_ms = producer._now_ms()  # noqa: SLF001
    for tp, group in groups.items():
        queue = sender.queue(*tp)
        batches, size = queue.extend(group, timestamp_ms)
        buffer.used += size
        sender.activate(queue)
        yield from batches
