"""The calculation of a record set's end offset from its batch headers, in pure Python."""

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HEAD: Final = Struct(">qiib")  # base offset, length, leader epoch (old formats: crc), magic
_LAST_DELTA: Final = Struct(">i")
_ENTRY_HEAD, _LAST_DELTA_AT = 12, 23
_V2_LEAST, _LEGACY_LEAST = 61, 26
_MOST: Final = 2**63 - 1


def record_set_end(data: "Buffer", otherwise: int, /) -> tuple[int, int]:
    """Return the offset after the last complete record batch, and the leader epoch of that batch.

    Without a complete batch, return `otherwise` and -1. A fetcher uses the result to send the next
    fetch before the records are decoded. The scan stops at the first incomplete or corrupt batch.
    The decoder reports the error of a corrupt batch later.
    """
    view = memoryview(data).cast("B")
    position, behind, epoch = 0, otherwise, -1
    while len(view) - position >= _LEGACY_LEAST:
        first, length, led, magic = _HEAD.unpack_from(view, position)
        whole, modern = _ENTRY_HEAD + length, magic >= 2
        if whole < (_V2_LEAST if modern else _LEGACY_LEAST) or whole > len(view) - position:
            break
        delta = _LAST_DELTA.unpack_from(view, position + _LAST_DELTA_AT)[0] if modern else 0
        if first < 0 or delta < 0 or first > _MOST - delta - 1:
            break
        behind, epoch = first + delta + 1, led if modern else -1
        position += whole
    return behind, epoch
