# The compiled decoder has the same names, results and errors as the pure-Python one.
from typing_extensions import Buffer

from asyncconsumer.records._pure import AsyncRecords as AsyncRecords
from asyncconsumer.records._pure import BlockRun as BlockRun
from asyncconsumer.records._pure import FetchAnswer as FetchAnswer
from asyncconsumer.records._pure import Loop as Loop
from asyncconsumer.records._pure import Message as Message
from asyncconsumer.records._pure import MessageBuilder as MessageBuilder
from asyncconsumer.records._pure import PartitionAnswer as PartitionAnswer
from asyncconsumer.records._pure import PartReader as PartReader
from asyncconsumer.records._pure import PartsCall as PartsCall
from asyncconsumer.records._pure import Record as Record
from asyncconsumer.records._pure import RecordBlock as RecordBlock
from asyncconsumer.records._pure import RecordEncoder as RecordEncoder
from asyncconsumer.records._pure import Records as Records
from asyncconsumer.records._pure import crc32c as crc32c
from asyncconsumer.records._pure import fetch_answer as fetch_answer
from asyncconsumer.records._pure import murmur2 as murmur2
from asyncconsumer.records._pure import record_set_end as record_set_end
from asyncconsumer.records._pure import room_for as room_for

def _crc32c_unfolded(data: Buffer, /) -> int: ...
def _crc32c_portable(data: Buffer, /) -> int: ...
