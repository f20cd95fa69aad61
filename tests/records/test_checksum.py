import random
from types import ModuleType

import pytest

pytestmark = pytest.mark.fast

BITS = 0x82F63B78


def by_the_bit(data: bytes) -> int:
    """Compute CRC-32C by its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (BITS if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# near the lengths at which interleaving, shorter interleaving and folding start
VECTOR_LENGTHS = [383, 384, 385, 391, 767, 768, 6143, 6144, 6145, 6144 + 384 + 9, 20_000]
LENGTHS = [*range(18), *VECTOR_LENGTHS, 1023, 1024, 1025, 1279, 1280, 1281]
WAYS = ("crc32c", "_crc32c_unfolded", "_crc32c_portable")


@pytest.mark.parametrize("length", LENGTHS)
def test_every_length_and_alignment_gives_the_defined_checksum(
    decoder: ModuleType, length: int
) -> None:
    data = random.Random(length).randbytes(length + 1)
    for begin in (0, 1):
        part = memoryview(data)[begin : begin + length]
        expected = by_the_bit(bytes(part))
        for way in WAYS:
            assert getattr(decoder, way, decoder.crc32c)(part) == expected, way


def test_the_check_value_of_the_standard(decoder: ModuleType) -> None:
    assert decoder.crc32c(b"123456789") == 0xE3069283
    with pytest.raises(TypeError):
        decoder.crc32c("text")
