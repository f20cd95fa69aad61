"""A chunk: the records of one partition from one fetch."""

from dataclasses import dataclass

from asyncconsumer.metrics.recorder import PartitionMeter
from asyncconsumer.records import decoding
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The records of one partition from one fetch, decoded during iteration."""

    partition: TopicPartition
    offset: int  # the requested offset
    next_offset: int  # the offset after the last record
    epoch: int  # `epoch` of the fetch target of this chunk
    leader_epoch: int  # leader epoch of the last batch, or -1
    size: int  # bytes in memory
    records: decoding.Records
    timestamp: int = -1  # timestamp of the first batch in milliseconds, or -1
    meter: PartitionMeter | None = None  # counts the delivered records
