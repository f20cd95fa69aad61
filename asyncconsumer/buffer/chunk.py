"""What one fetch brought of one partition."""

from dataclasses import dataclass

from asyncconsumer.records import decoding
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Records of one partition, decoded as they are iterated over, and where they belong."""

    partition: TopicPartition
    offset: int  # that was asked for
    next_offset: int  # behind the last record
    epoch: int  # of the assignment it was fetched for
    leader_epoch: int  # of the last batch, or -1
    size: int  # bytes it keeps in memory
    records: decoding.Records
