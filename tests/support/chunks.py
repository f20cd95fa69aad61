"""Chunks without a broker."""

from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.records import decoding
from asyncconsumer.testing.fake_kafka.log import Writer, make_batch
from asyncconsumer.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def chunk(tp: TopicPartition, offset: int = 0, count: int = 3, size: int | None = None) -> Chunk:
    """Return a chunk of `count` records. It is charged with its size, or with `size`."""
    data = make_batch(Writer(*tp, epoch=5, incarnation=1), offset, count, 0).data
    records = decoding.Records(data, topic=tp.topic, partition=tp.partition, offset=offset)
    return Chunk(tp, offset, offset + count, 1, 5, len(data) if size is None else size, records)
