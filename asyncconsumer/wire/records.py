"""Record decoding in pure Python: the reference, and the fallback, of the compiled `_records`."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_CRC_TABLE: Final = _crc_table()


def crc32c(data: "Buffer", /) -> int:
    """CRC-32C (Castagnoli) of a bytes-like object."""
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in bytes(data):
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
