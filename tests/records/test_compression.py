import gzip
import os
import struct
import zlib
from types import ModuleType

import cramjam
import pytest

from asyncconsumer.records import compression, decoding
from asyncconsumer.records.compression import BadCompression, inflate
from tests.support.record_encoder import batch, compress, message, rows, wrapper, xerial

pytestmark = pytest.mark.fast

TEXT = b"".join(b"line %d of many\n" % i for i in range(20_000))


def inflated(
    codec: int, source: bytes, limit: int = 1 << 24, room: bytearray | None = None
) -> bytes:
    room = bytearray() if room is None else room

    def room_of(size: int) -> bytearray:
        room.extend(bytes(max(0, size - len(room))))
        return room

    return bytes(room[: inflate(codec, memoryview(source), room_of, limit)])


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "data",
    [b"", b"x", TEXT, b"\0" * 5_000_000, os.urandom(100_000)],
    ids=["empty", "byte", "text", "zeros", "random"],
)
def test_every_codec_decompresses_its_input(codec: int, data: bytes) -> None:
    assert inflated(codec, compress(codec, data)) == data


def test_the_room_is_reused() -> None:
    room = bytearray(b"\xff" * 1_000_000)
    for codec in (1, 2, 3, 4):
        assert inflated(codec, compress(codec, TEXT), room=room) == TEXT
    assert len(room) == 1_000_000


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_the_limit_is_exact(codec: int) -> None:
    source = compress(codec, TEXT)
    assert inflated(codec, source, limit=len(TEXT)) == TEXT
    with pytest.raises(BadCompression, match="max_decompressed_bytes"):
        inflated(codec, source, limit=len(TEXT) - 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_larger_room_does_not_raise_the_limit(codec: int) -> None:
    room = bytearray(2 * len(TEXT))
    with pytest.raises(BadCompression, match="max_decompressed_bytes"):
        inflated(codec, compress(codec, TEXT), limit=len(TEXT) - 1, room=room)


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_several_frames_are_decompressed(codec: int) -> None:
    twice = compress(codec, TEXT) + compress(codec, TEXT)
    assert inflated(codec, twice) == TEXT * 2
    with pytest.raises(BadCompression):
        inflated(codec, twice, limit=len(TEXT) + 5)


def streamed_zstd(data: bytes, pieces: int) -> bytes:
    """Compress like Java's clients, which do not know the size at the start of the frame."""
    compressor, out = cramjam.zstd.Compressor(), b""
    for offset in range(pieces):
        compressor.compress(data[offset * len(data) // pieces : (offset + 1) * len(data) // pieces])
        out += bytes(compressor.flush())
    return out + bytes(compressor.finish())


@pytest.mark.parametrize("pieces", [1, 7, 300])
def test_zstd_without_a_declared_size_is_decompressed(pieces: int) -> None:
    source = streamed_zstd(TEXT, pieces)
    assert compression._zstd_size(memoryview(source), 0).declared is None
    assert inflated(4, source) == TEXT
    with pytest.raises(BadCompression, match="max_decompressed_bytes"):
        inflated(4, source, limit=len(TEXT) - 1)


def test_zstd_of_many_blocks_is_decompressed() -> None:
    source = streamed_zstd(TEXT, 9000)
    assert inflated(4, source) == TEXT


def test_xerial_snappy_is_decompressed() -> None:
    assert inflated(2, xerial(TEXT)) == TEXT
    assert inflated(2, xerial(b"")) == b""
    with pytest.raises(BadCompression, match="max_decompressed_bytes"):
        inflated(2, xerial(TEXT), limit=len(TEXT) - 1)


def test_gzip_with_a_wrong_size_is_refused() -> None:
    source = bytearray(gzip.compress(TEXT))
    source[-4:] = (5).to_bytes(4, "little")
    with pytest.raises(BadCompression, match="bad gzip data"):
        inflated(1, bytes(source))


def test_gzip_with_an_impossible_size_allocates_no_room() -> None:
    source, room = bytearray(gzip.compress(TEXT)), bytearray()
    source[-4:] = b"\xff" * 4
    with pytest.raises(BadCompression, match="bad gzip data"):
        inflated(1, bytes(source), limit=1 << 33, room=room)
    assert not room


MIXED = b"".join(os.urandom(40) + bytes([i % 256]) * (i % 700) for i in range(3000))


@pytest.mark.parametrize(
    "data",
    [b"x", TEXT, b"\0" * 5_000_000, os.urandom(100_000), MIXED],
    ids=["byte", "text", "zeros", "random", "mixed"],
)
def test_lz4_is_measured_without_decompression(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(compression, "_MOST_SEQUENCES", 1_000_000)
    source = memoryview(compress(3, data))
    blocks, is_all = compression._lz4_blocks(source)
    assert is_all
    assert compression._lz4_measured(source, blocks, 1 << 30) == len(data)


def test_an_lz4_bomb_allocates_no_room() -> None:
    bomb, room = compress(3, b"\0" * 5_000_000), bytearray()
    with pytest.raises(BadCompression, match="more than `max_decompressed_bytes`"):
        inflated(3, bomb, limit=4_999_999, room=room)
    assert not room


@pytest.mark.parametrize("sequences", [3, 1_000_000])
def test_lz4_close_to_the_limit_is_decompressed(
    monkeypatch: pytest.MonkeyPatch, sequences: int
) -> None:
    monkeypatch.setattr(compression, "_MOST_SEQUENCES", sequences)
    source = compress(3, MIXED)
    assert inflated(3, source, limit=len(MIXED)) == MIXED
    with pytest.raises(BadCompression, match="more than `max_decompressed_bytes`"):
        inflated(3, source, limit=len(MIXED) - 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4, compression.LZ4_WITHOUT_HEADER_CHECK])
def test_truncated_compressed_data_is_refused(codec: int) -> None:
    whole = compress(3 if codec > 4 else codec, TEXT[:500])
    for cut in range(len(whole)):
        with pytest.raises(BadCompression):
            inflated(codec, whole[:cut])


@pytest.mark.parametrize("old", [False, True], ids=["batch", "old message set"])
def test_a_memory_error_during_decompression_loses_no_record(
    decoder: ModuleType, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    if old:
        data = wrapper(message(0) + message(1) + message(2), 2, codec=1) + message(3)
    else:
        data = batch(rows(3), codec=1) + batch(rows(1, 3))
    result = decoder.Records(data, topic="t", partition=0)

    def no_memory(*_: object) -> int:
        raise MemoryError

    codec = compression._CODECS[1]
    monkeypatch.setitem(compression._CODECS, 1, codec._replace(into=no_memory))
    for _ in range(2):
        with pytest.raises(MemoryError):
            next(result)
    monkeypatch.setitem(compression._CODECS, 1, codec)
    assert [record.offset for record in result] == [0, 1, 2, 3]


def test_a_memory_error_for_a_record_does_not_lose_it() -> None:
    hooks = pytest.importorskip("_testcapi")
    _, decoder = decoding.load("compiled")
    result = decoder.Records(batch(rows(3, size=3000)), topic="t", partition=0)
    first = next(result)  # kept, so that the next record cannot reuse its memory

    def without_memory() -> None:
        try:
            hooks.set_nomemory(0, 0)
            next(result)
        finally:
            hooks.remove_mem_hooks()

    with pytest.raises(MemoryError):
        without_memory()
    assert [record.offset for record in (first, *result)] == [0, 1, 2]


# --- work is bounded as well as memory -----------------------------------------------------------

XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
TINY_BLOCKS = {
    "no bytes": struct.pack(">i", 0),
    "an empty block": struct.pack(">i", 1) + b"\0",
    "one byte": struct.pack(">i", 3) + b"\1\0x",
}


@pytest.mark.parametrize("block", TINY_BLOCKS.values(), ids=TINY_BLOCKS)
def test_too_many_snappy_blocks_are_refused_before_decompression(
    monkeypatch: pytest.MonkeyPatch, block: bytes
) -> None:
    measured_blocks = 0

    def measured(_: memoryview) -> int:
        nonlocal measured_blocks
        measured_blocks += 1
        return 0

    monkeypatch.setattr(cramjam.snappy, "decompress_raw_len", measured)
    monkeypatch.setattr(cramjam.snappy, "decompress_raw_into", pytest.fail)
    source = XERIAL + block * (2**20 // len(block))
    with pytest.raises(BadCompression, match="snappy data of more than 8192 blocks in"):
        inflated(2, source)
    assert measured_blocks == 8192


def test_snappy_blocks_are_created_lazily() -> None:
    source = memoryview(XERIAL + TINY_BLOCKS["one byte"] * 100)
    blocks = compression._snappy_blocks(source)
    assert bytes(next(blocks)) == b"\1\0x"
    assert len(list(blocks)) == 99


def test_the_snappy_blocks_of_producers_are_decompressed() -> None:
    data = bytes(1024) * 4000 + os.urandom(2**20)
    for block in (1024, 32 * 1024):  # the minimum of the library, and the default
        assert inflated(2, xerial(data, block)) == data


def test_snappy_with_an_impossible_size_allocates_no_room() -> None:
    room = bytearray()
    with pytest.raises(BadCompression, match="bad snappy data"):
        inflated(2, b"\x80\x80\x80\x08" + b"\0a", room=room)  # 16 MiB of two bytes
    assert not room
    assert inflated(2, compress(2, bytes(10**6))) == bytes(10**6)


def test_gzip_of_too_many_members_is_refused() -> None:
    member = gzip.compress(b"")
    assert inflated(1, member * 256) == b""
    with pytest.raises(BadCompression, match="more than 256 members"):
        inflated(1, member * 257)


def test_gzip_continues_after_each_piece() -> None:
    data = os.urandom(200_000) + bytes(5_000_000) + os.urandom(200_000)
    assert inflated(1, gzip.compress(data)) == data
    assert inflated(1, gzip.compress(data) + gzip.compress(TEXT)) == data + TEXT


def test_gzip_of_empty_blocks_is_left_to_zlib() -> None:
    """Some other libraries create a table for each block and take seconds for a megabyte."""
    head, end = b"\x1f\x8b\x08\0\0\0\0\0\0\xff", b"\1\0\0\xff\xff" + bytes(8)
    four_fixed_blocks = b"\x02\x08\x20\x80\x00"
    assert zlib.decompress(head + four_fixed_blocks + end, 31) == b""
    assert inflated(1, head + four_fixed_blocks * 50_000 + end) == b""
    assert compression._CODECS[1].into is compression._gzip_into
