"""The record decoder in pure Python: the reference, and fallback, of the compiled `_records`."""

from asyncconsumer.wire.answers import FetchAnswer, PartitionAnswer, fetch_answer
from asyncconsumer.wire.checksum import crc32c
from asyncconsumer.wire.ends import record_set_end
from asyncconsumer.wire.record import Record
from asyncconsumer.wire.record_set import Records
from asyncconsumer.wire.stream import AsyncRecords

__all__ = [
    "AsyncRecords",
    "FetchAnswer",
    "PartitionAnswer",
    "Record",
    "Records",
    "crc32c",
    "fetch_answer",
    "record_set_end",
    "room",
]


def room(size: int, /) -> bytearray:
    """A buffer to be filled; the compiled one does not zero it before."""
    return bytearray(size)
