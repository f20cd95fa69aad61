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
def test_every_codec_gives_back_what_was_compressed(codec: int, data: bytes) -> None:
    assert inflated(codec, compress(codec, data)) == data


def test_the_room_is_used_again() -> None:
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
def test_a_room_above_the_limit_does_not_lift_it(codec: int) -> None:
    room = bytearray(2 * len(TEXT))
    with pytest.raises(BadCompression, match="max_decompressed_bytes"):
        inflated(codec, compress(codec, TEXT), limit=len(TEXT) - 1, room=room)


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_frames_may_follow_each_other(codec: int) -> None:
    twice = compress(codec, TEXT) + compress(codec, TEXT)
    assert inflated(codec, twice) == TEXT * 2
    with pytest.raises(BadCompression):
        inflated(codec, twice, limit=len(TEXT) + 5)


def streamed_zstd(data: bytes, pieces: int) -> bytes:
    """As Java's clients write it: the size is not known when the frame begins."""
    compressor, out = cramjam.zstd.Compressor(), b""
    for offset in range(pieces):
        compressor.compress(data[offset * len(data) // pieces : (offset + 1) * len(data) // pieces])
        out += bytes(compressor.flush())
    return out + bytes(compressor.finish())


@pytest.mark.parametrize("pieces", [1, 7, 300])
def test_zstd_that_does_not_say_its_size(pieces: int) -> None:
    source = streamed_zstd(TEXT, pieces)
    assert compression._zstd_size(memoryview(source), 0).declared is None
    assert inflated(4, source) == TEXT
    with pytest.raises(BadCompression, match="max_decompressed_bytes"):
        inflated(4, source, limit=len(TEXT) - 1)


def test_zstd_of_very_many_blocks() -> None:
    source = streamed_zstd(TEXT, 9000)
    assert inflated(4, source) == TEXT


def test_xerial_snappy() -> None:
    assert inflated(2, xerial(TEXT)) == TEXT
    assert inflated(2, xerial(b"")) == b""
    with pytest.raises(BadCompression, match="max_decompressed_bytes"):
        inflated(2, xerial(TEXT), limit=len(TEXT) - 1)


def test_gzip_that_lies_about_its_size_is_bad() -> None:
    source = bytearray(gzip.compress(TEXT))
    source[-4:] = (5).to_bytes(4, "little")
    with pytest.raises(BadCompression, match="bad gzip data"):
        inflated(1, bytes(source))


def test_gzip_that_claims_what_it_cannot_hold_takes_no_room() -> None:
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
def test_lz4_is_measured_without_inflating_it(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(compression, "_MOST_SEQUENCES", 1_000_000)
    source = memoryview(compress(3, data))
    blocks, is_all = compression._lz4_blocks(source)
    assert is_all
    assert compression._lz4_measured(source, blocks, 1 << 30) == len(data)


def test_a_bomb_of_lz4_takes_no_room() -> None:
    bomb, room = compress(3, b"\0" * 5_000_000), bytearray()
    with pytest.raises(BadCompression, match="more than `max_decompressed_bytes`"):
        inflated(3, bomb, limit=4_999_999, room=room)
    assert not room


@pytest.mark.parametrize("sequences", [3, 1_000_000])
def test_lz4_that_might_be_too_much_and_is_not(
    monkeypatch: pytest.MonkeyPatch, sequences: int
) -> None:
    monkeypatch.setattr(compression, "_MOST_SEQUENCES", sequences)
    source = compress(3, MIXED)
    assert inflated(3, source, limit=len(MIXED)) == MIXED
    with pytest.raises(BadCompression, match="more than `max_decompressed_bytes`"):
        inflated(3, source, limit=len(MIXED) - 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4, compression.LZ4_WITHOUT_HEADER_CHECK])
def test_anything_cut_short_is_bad(codec: int) -> None:
    whole = compress(3 if codec > 4 else codec, TEXT[:500])
    for cut in range(len(whole)):
        with pytest.raises(BadCompression):
            inflated(codec, whole[:cut])


@pytest.mark.parametrize("old", [False, True], ids=["batch", "old message set"])
def test_running_out_of_memory_while_inflating_loses_no_record(
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


def test_running_out_of_memory_for_a_record_does_not_lose_it() -> None:
    hooks = pytest.importorskip("_testcapi")
    _, decoder = decoding.load("compiled")
    result = decoder.Records(batch(rows(3, size=3000)), topic="t", partition=0)
    first = next(result)  # which is kept, so that the next record cannot reuse its memory

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
def test_very_many_snappy_blocks_are_refused_before_one_is_decompressed(
    monkeypatch: pytest.MonkeyPatch, block: bytes
) -> None:
    looked_at = 0

    def measured(_: memoryview) -> int:
        nonlocal looked_at
        looked_at += 1
        return 0

    monkeypatch.setattr(cramjam.snappy, "decompress_raw_len", measured)
    monkeypatch.setattr(cramjam.snappy, "decompress_raw_into", pytest.fail)
    source = XERIAL + block * (2**20 // len(block))
    with pytest.raises(BadCompression, match="snappy data of more than 8192 blocks in"):
        inflated(2, source)
    assert looked_at == 8192


def test_snappy_blocks_are_not_made_all_at_once() -> None:
    source = memoryview(XERIAL + TINY_BLOCKS["one byte"] * 100)
    blocks = compression._snappy_blocks(source)
    assert bytes(next(blocks)) == b"\1\0x"
    assert len(list(blocks)) == 99


def test_as_many_snappy_blocks_as_a_producer_writes() -> None:
    data = bytes(1024) * 4000 + os.urandom(2**20)
    for block in (1024, 32 * 1024):  # the least that its library has, and the usual
        assert inflated(2, xerial(data, block)) == data


def test_snappy_that_claims_what_it_cannot_hold_takes_no_room() -> None:
    room = bytearray()
    with pytest.raises(BadCompression, match="bad snappy data"):
        inflated(2, b"\x80\x80\x80\x08" + b"\0a", room=room)  # 16 MiB of two bytes
    assert not room
    assert inflated(2, compress(2, bytes(10**6))) == bytes(10**6)


def test_gzip_of_very_many_members_is_refused_after_some() -> None:
    member = gzip.compress(b"")
    assert inflated(1, member * 256) == b""
    with pytest.raises(BadCompression, match="more than 256 members"):
        inflated(1, member * 257)


def test_gzip_goes_on_where_a_piece_ends() -> None:
    data = os.urandom(200_000) + bytes(5_000_000) + os.urandom(200_000)
    assert inflated(1, gzip.compress(data)) == data
    assert inflated(1, gzip.compress(data) + gzip.compress(TEXT)) == data + TEXT


def test_gzip_of_empty_blocks_is_left_to_zlib() -> None:
    """Of which some other libraries take seconds for a megabyte: they make a table for each."""
    head, end = b"\x1f\x8b\x08\0\0\0\0\0\0\xff", b"\1\0\0\xff\xff" + bytes(8)
    four_fixed_blocks = b"\x02\x08\x20\x80\x00"
    assert zlib.decompress(head + four_fixed_blocks + end, 31) == b""
    assert inflated(1, head + four_fixed_blocks * 50_000 + end) == b""
    assert compression._CODECS[1].into is compression._gzip_into
