# The compiled decoder has the names, the answers and the errors of the pure one.
from typing_extensions import Buffer

from asyncconsumer.wire.records import AsyncRecords as AsyncRecords
from asyncconsumer.wire.records import Record as Record
from asyncconsumer.wire.records import Records as Records
from asyncconsumer.wire.records import crc32c as crc32c

def _crc32c_portable(data: Buffer, /) -> int: ...
