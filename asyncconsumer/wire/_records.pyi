# The compiled decoder has the names, the answers and the errors of the pure one.
from typing_extensions import Buffer

from asyncconsumer.wire.records import AsyncRecords as AsyncRecords
from asyncconsumer.wire.records import FetchAnswer as FetchAnswer
from asyncconsumer.wire.records import Loop as Loop
from asyncconsumer.wire.records import PartitionAnswer as PartitionAnswer
from asyncconsumer.wire.records import Record as Record
from asyncconsumer.wire.records import Records as Records
from asyncconsumer.wire.records import crc32c as crc32c
from asyncconsumer.wire.records import fetch_answer as fetch_answer
from asyncconsumer.wire.records import record_set_end as record_set_end
from asyncconsumer.wire.records import room_for as room_for

def _crc32c_unfolded(data: Buffer, /) -> int: ...
def _crc32c_portable(data: Buffer, /) -> int: ...
