"""The CRC-32C function of aiokafka, which is compiled code on most platforms."""

from typing import TYPE_CHECKING

from asyncconsumer.aiokafka_parts import calc_crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer


def crc32c(data: "Buffer", /) -> int:
    """Return the CRC-32C (Castagnoli) of a bytes-like object."""
    crc: int = calc_crc32c(memoryview(data).cast("B"))
    return crc
