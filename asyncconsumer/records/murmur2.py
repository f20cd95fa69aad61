"""The key hash of Kafka's own clients, in pure Python."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def murmur2(data: "Buffer", /) -> int:
    """Return the unsigned 32-bit hash by which Kafka's clients choose the partition of a key."""
    with memoryview(data) as view:
        key = bytes(view)
    value = _SEED ^ len(key)
    whole = len(key) & ~3
    for position in range(0, whole, 4):
        part = int.from_bytes(key[position : position + 4], "little") * _M & _MASK
        part ^= part >> 24
        value = (value * _M ^ part * _M) & _MASK
    if rest := key[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15
