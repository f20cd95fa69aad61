"""Chunks without a broker."""

from asyncconsumer.chunks.chunk import Chunk
from asyncconsumer.model import TopicPartition
from asyncconsumer.testing.cluster.log import Writer, make_batch
from asyncconsumer.wire import accel

A, B, C = (TopicPartition("t", number) for number in range(3))


def chunk(at: TopicPartition, offset: int = 0, count: int = 3, size: int | None = None) -> Chunk:
    """A chunk of so many records, charged with its size, or as a test says."""
    data = make_batch(Writer(*at, epoch=5, incarnation=1), offset, count, 0).data
    records = accel.Records(data, topic=at.topic, partition=at.partition, offset=offset)
    return Chunk(at, offset, offset + count, 1, 5, len(data) if size is None else size, records)
