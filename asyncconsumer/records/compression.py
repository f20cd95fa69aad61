"""Inflating what a broker sent, into no more memory than the caller allows.

Before anything is inflated its format is asked for the size: snappy and gzip carry it, lz4 and zstd
carry it or are made of blocks of a known largest size. So room is mostly taken once, and a bomb is
refused at once or when it has filled `limit` bytes. Fresh memory costs more time than inflating
into it does, so none is taken for what can be told beforehand, and none is tried for little.

Work is bounded as well as memory. Blocks that cost a Python call each are counted before the first
is decompressed. The standard library decompresses gzip: its time per input byte has a low bound.

A caller on an event loop asks for what can be done `at_once`. A body that takes longer raises
`TooLarge`, mostly before any work is done on it. It is for another thread: all codecs release the
interpreter lock.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import cramjam

if TYPE_CHECKING:
    from typing_extensions import Buffer

LZ4_WITHOUT_HEADER_CHECK: Final = 11
"""lz4 as clients of magic 0 wrote it, with a checksum over the wrong bytes of the frame header."""

AT_ONCE: Final = 4 * 1024 * 1024
"""Bytes that are decompressed at once, on an event loop: some milliseconds."""

_BEGIN: Final = 64 * 1024  # room taken without further thought
_USUAL_RATIO: Final = 16  # more is tried only when this was not enough
_WORTH_A_TRY: Final = 4  # times less room than the most there can be, or that is taken at once
_MOST_BLOCKS: Final = 4096  # counted in advance; a stream of more is not worth the time
_MOST_SEQUENCES: Final = 10_000  # the same; those of a bomb are long and few
_BYTES_PER_BLOCK: Final = 256  # compressed, on average, of what has more than _MOST_BLOCKS blocks
_MOST_MEMBERS: Final = 256  # of gzip; encoders write one
_GZIP: Final = 31  # zlib's number for a gzip header and trailer
_GZIP_INPUT: Final = 64 * 1024  # bytes at a time: zlib copies what it has not consumed
_GZIP_OUTPUT: Final = 1024 * 1024  # the same: what it produces is copied to its place
_GZIP_AT_ONCE: Final = 128 * 1024  # bytes of input: empty blocks take time and produce nothing
_SNAPPY_RATIO: Final = 22  # a copy of three bytes makes 64 bytes at the most

_INT = Struct(">i")
_LITTLE_INT = Struct("<I")
_LITTLE_LONG = Struct("<Q")

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 16  # magic, version, oldest version that can read it
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_LENGTH: Final = 0x7FFFFFFF  # the other bit says that a block is stored as it is
_LZ4_LEAST_MATCH: Final = 4
_LZ4_LONG: Final = 15  # a length that goes on in the bytes that follow
_ALL_ONES: Final = re.compile(b"\xff*")
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK: Final = 128 * 1024
_DEFLATE_RATIO: Final = 1032


class BadCompression(Exception):
    """The bytes do not inflate, or to more than allowed. The text says which."""


class TooLarge(Exception):
    """Decompressing the bytes would take too long to be done at once."""


class _NoRoom(Exception):
    """The room is too small for what comes out."""


class Size(NamedTuple):
    """What a compressed body says of its size: exactly, if it does, and at most."""

    declared: int | None
    most: int
    slow: bool = False  # it may take long, however little comes out

    @property
    def takes_long(self) -> bool:
        """Whether it should not be decompressed at once."""
        return self.slow or (self.most if self.declared is None else self.declared) > AT_ONCE


class _Codec(NamedTuple):
    name: str
    size: Callable[[memoryview, int], Size]
    into: Callable[[memoryview, memoryview], int]


def inflate(
    codec: int,
    source: memoryview,
    room_of: "Callable[[int], Buffer]",
    limit: int,
    at_once: bool = False,  # noqa: FBT001, FBT002 - called from C
) -> int:
    """Inflate `source` to the front of a room; returns the bytes used.

    `room_of` gives a writable buffer of at least so many bytes, with anything in it. It is asked
    again if that was too small. The last room that it gave has the result.

    With `at_once`, what would take long raises TooLarge.
    """
    name, size_of, into = _CODECS[codec]
    allowed = min(limit, AT_ONCE) if at_once else limit
    try:
        size = size_of(source, limit)
        declared, most, _ = size
        if declared is not None and declared > limit:
            raise BadCompression(
                f"{name} data of {declared} bytes, more than max_inflated ({limit})"
            )
        if at_once and size.takes_long:
            raise TooLarge
        for wanted in _rooms(declared, min(most, allowed), len(source)):
            with memoryview(room_of(wanted)) as whole, whole[:allowed] as part:
                try:
                    return into(source, part)
                except _NoRoom:
                    pass
                except cramjam.DecompressionError as error:
                    if "write whole buffer" not in str(error):
                        raise
    except (cramjam.DecompressionError, IndexError, ValueError, struct.error, zlib.error):
        raise BadCompression(f"bad {name} data") from None
    if allowed < min(most, limit):
        raise TooLarge
    if most > limit:
        raise _too_much(name, limit)
    raise BadCompression(f"bad {name} data")


def _too_much(name: str, limit: int) -> BadCompression:
    return BadCompression(f"{name} data of more than max_inflated ({limit}) bytes")


def _rooms(declared: int | None, most: int, length: int) -> list[int]:
    """How much room to try, the last of it all that there may be."""
    if declared is not None:
        return sorted({min(declared, most), most})
    first = max(_BEGIN, _USUAL_RATIO * length)
    return [first, most] if first <= most // _WORTH_A_TRY else [most]


def _gzip_size(source: memoryview, _limit: int) -> Size:
    most = _DEFLATE_RATIO * len(source)
    declared: int = _LITTLE_INT.unpack_from(source, len(source) - 4)[0]
    if declared > most:
        raise ValueError("a size that is not true")
    return Size(declared, most, slow=len(source) > _GZIP_AT_ONCE)


def _gzip_into(source: memoryview, room: memoryview) -> int:
    at = used = 0
    for _ in range(_MOST_MEMBERS):
        size, length = _gzip_member_into(source[at:], room[used:])
        used += size
        at += length
        if at == len(source):
            return used
    raise BadCompression(f"gzip data of more than {_MOST_MEMBERS} members")


def _gzip_member_into(source: memoryview, room: memoryview) -> tuple[int, int]:
    """Inflate the first member of `source`; returns how much came out, and how long it is."""
    inflater, at, used = zlib.decompressobj(_GZIP), 0, 0
    piece: bytes | memoryview = b""
    full = False  # then more may come out without more input
    while not inflater.eof:
        if not piece and not full:
            piece = source[at : at + _GZIP_INPUT]
            at += len(piece)
            if not piece:
                raise ValueError("it ends in the middle of a member")
        most = min(_GZIP_OUTPUT, len(room) - used + 1)
        out = inflater.decompress(piece, most)
        if len(out) > len(room) - used:
            raise _NoRoom
        room[used : used + len(out)] = out
        used += len(out)
        piece, full = inflater.unconsumed_tail, len(out) == most
    return used, at - len(inflater.unused_data)


def _snappy_size(source: memoryview, _limit: int) -> Size:
    total = 0
    for block in _snappy_blocks(source):
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_RATIO * len(block):
            raise ValueError("a size that is not true")
        total += size
    return Size(total, total)


def _snappy_into(source: memoryview, room: memoryview) -> int:
    used = 0
    for block in _snappy_blocks(source):
        used += cramjam.snappy.decompress_raw_into(block, room[used:])
    return used


def _snappy_blocks(source: memoryview) -> Iterator[memoryview]:
    """The whole, or one by one the parts of what Java clients write (xerial's framing)."""
    if bytes(source[:8]) != _XERIAL_MAGIC:
        yield source
        return
    at, most = _XERIAL_HEAD, _most_blocks(source)
    for _ in range(most):
        if at >= len(source):
            return
        (length,) = _INT.unpack_from(source, at)
        at += 4
        if not 0 <= length <= len(source) - at:
            raise ValueError("a block beyond the end")
        yield source[at : at + length]
        at += length
    if at < len(source):
        raise BadCompression(f"snappy data of more than {most} blocks in {len(source)} bytes")


def _most_blocks(source: memoryview) -> int:
    """How many blocks are worth the time: each costs some, however small it is."""
    return _MOST_BLOCKS + len(source) // _BYTES_PER_BLOCK


def _lz4_size(source: memoryview, limit: int) -> Size:
    if bytes(source[:4]) != _LZ4_MAGIC:
        raise ValueError("no lz4 frame")
    flags, descriptor = source[4], source[5]
    declared: int | None = _LITTLE_LONG.unpack_from(source, 6)[0] if flags & 8 else None
    largest = 1 << (8 + 2 * (descriptor >> 4 & 7))
    blocks, is_all = _lz4_blocks(source)
    most = largest * len(blocks) if is_all else 255 * len(source)
    if declared is None and most > limit:
        declared = _lz4_measured(source, blocks, limit)
        if declared is not None and declared > limit:
            raise _too_much("lz4", limit)
    return Size(declared, most, slow=not is_all)


def _lz4_blocks(source: memoryview) -> tuple[list[tuple[int, int]], bool]:
    """Where blocks begin, with their lengths as they are written; and whether these are all."""
    flags = source[4]
    at = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    between = 8 if flags & 16 else 4  # a block's length and, maybe, its checksum
    blocks: list[tuple[int, int]] = []
    while at + 4 <= len(source) and len(blocks) < _MOST_BLOCKS:
        (length,) = _LITTLE_INT.unpack_from(source, at)
        if length & _LZ4_LENGTH == 0:
            break
        blocks.append((at + 4, length))
        at += between + (length & _LZ4_LENGTH)
    is_all = len(blocks) < _MOST_BLOCKS and at + (8 if flags & 4 else 4) >= len(source)
    return blocks, is_all


def _lz4_measured(source: memoryview, blocks: list[tuple[int, int]], limit: int) -> int | None:
    """What the blocks inflate to, as far as it takes to see that it is too much; or None."""
    size, sequences = 0, 0
    for at, length in blocks:
        if length > _LZ4_LENGTH:  # stored as it is
            size += length & _LZ4_LENGTH
            continue
        end = at + length
        while at < end and size <= limit:
            sequences += 1
            if sequences > _MOST_SEQUENCES:
                return None
            token = source[at]
            literals, at = _lz4_length(source, token >> 4, at + 1)
            at += literals
            size += literals
            if at < end:  # the last sequence of a block has no match
                match, at = _lz4_length(source, token & 15, at + 2)
                size += match + _LZ4_LEAST_MATCH
    return size


def _lz4_length(source: memoryview, length: int, at: int) -> tuple[int, int]:
    """A length, and the place behind it."""
    if length < _LZ4_LONG:
        return length, at
    ones = _ALL_ONES.match(source, at)
    last = ones.end() if ones else at
    return length + 255 * (last - at) + source[last], last + 1


def _lz4_repaired_into(source: memoryview, room: memoryview) -> int:
    repaired = bytearray(source)
    head = 6 + (8 if repaired[4] & 8 else 0) + (4 if repaired[4] & 1 else 0)
    repaired[head] = _xxh32_of_few(bytes(repaired[4:head])) >> 8 & 0xFF
    used: int = cramjam.lz4.decompress_into(repaired, room)
    return used


def _xxh32_of_few(data: bytes) -> int:
    """xxHash32 of fewer than 16 bytes, which is all that an lz4 frame header has."""
    one, two, three, four, five = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask, value, at = 0xFFFFFFFF, five + len(data), 0
    while at + 4 <= len(data):
        value = (value + _LITTLE_INT.unpack_from(data, at)[0] * three) & mask
        value = ((value << 17 | value >> 15) & mask) * four & mask
        at += 4
    for byte in data[at:]:
        value = (value + byte * five) & mask
        value = ((value << 11 | value >> 21) & mask) * one & mask
    value = (value ^ value >> 15) * two & mask
    value = (value ^ value >> 13) * three & mask
    return value ^ value >> 16


def _zstd_size(source: memoryview, _limit: int) -> Size:
    unknown = Size(None, 1 << 62, slow=True)
    if bytes(source[:4]) != _ZSTD_MAGIC:
        return unknown  # a skippable frame, or nothing that zstd knows
    flags = source[4]
    single, kind = flags >> 5 & 1, flags >> 6
    at = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[kind]
    most = _zstd_most(source, at + width, 4 if flags & 4 else 0)
    if width:
        declared = int.from_bytes(source[at : at + width], "little") + (256 if width == 2 else 0)
        return Size(declared, unknown.most, slow=most is None)  # more frames may follow
    return unknown if most is None else Size(None, most)


def _zstd_most(source: memoryview, at: int, checksum: int) -> int | None:
    """What the blocks from `at` on hold at most; None if they are many, or not all there is."""
    total = 0
    for _ in range(_MOST_BLOCKS):
        block = int.from_bytes(source[at : at + 3], "little")
        length = block >> 3
        total += _ZSTD_BLOCK if block >> 1 & 3 == 2 else length
        at += 3 + (1 if block >> 1 & 3 == 1 else length)
        if block & 1:
            return total if at + checksum >= len(source) else None
    return None


_CODECS: Final = {
    1: _Codec("gzip", _gzip_size, _gzip_into),
    2: _Codec("snappy", _snappy_size, _snappy_into),
    3: _Codec("lz4", _lz4_size, cramjam.lz4.decompress_into),
    4: _Codec("zstd", _zstd_size, cramjam.zstd.decompress_into),
    LZ4_WITHOUT_HEADER_CHECK: _Codec("lz4", _lz4_size, _lz4_repaired_into),
}
