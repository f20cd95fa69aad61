"""The timestamp of the first record of a record set, from its header."""

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

_V1: Final = Struct(">16xbxq")  # magic, and the timestamp of a message
_V2: Final = Struct(">16xb10xq")  # magic, and the base timestamp of a batch


def first_timestamp(data: "Buffer", /) -> int:
    """Return the timestamp in ms of the first batch or message, or -1 if there is none.

    The first batch may begin before the requested offset. Its timestamp is then slightly older than
    that of the requested record.
    """
    view = memoryview(data)
    if len(view) < _V1.size:
        return -1
    magic, timestamp = _V1.unpack_from(view)
    if magic == 2 and len(view) >= _V2.size:
        timestamp = _V2.unpack_from(view)[1]
    return int(timestamp) if magic in (1, 2) else -1
