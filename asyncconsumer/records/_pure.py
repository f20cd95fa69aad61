"""The pure-Python record decoder and encoder.

They are the reference for the compiled ones in `_records`, and are used if those are missing.
"""

from asyncconsumer.records.async_records import AsyncRecords
from asyncconsumer.records.block_run import BlockRun
from asyncconsumer.records.buffers import room_for
from asyncconsumer.records.checksum import crc32c
from asyncconsumer.records.fetch_response import FetchAnswer, PartitionAnswer, fetch_answer
from asyncconsumer.records.loop import Loop
from asyncconsumer.records.message import Message, MessageBuilder
from asyncconsumer.records.murmur2 import murmur2
from asyncconsumer.records.parts_call import PartReader, PartsCall
from asyncconsumer.records.record import Record
from asyncconsumer.records.record_block import RecordBlock
from asyncconsumer.records.record_encoder import RecordEncoder
from asyncconsumer.records.record_set import Records
from asyncconsumer.records.record_set_end import record_set_end

__all__ = [
    "AsyncRecords",
    "BlockRun",
    "FetchAnswer",
    "Loop",
    "Message",
    "MessageBuilder",
    "PartReader",
    "PartitionAnswer",
    "PartsCall",
    "Record",
    "RecordBlock",
    "RecordEncoder",
    "Records",
    "crc32c",
    "fetch_answer",
    "murmur2",
    "record_set_end",
    "room_for",
]
