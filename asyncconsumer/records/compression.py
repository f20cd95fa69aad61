"""The decompression of record batches within a memory limit.

The decompressed size is read from the compressed data first. Snappy and gzip data declare it. Lz4
and zstd data declare it, or consist of blocks with a known maximum size. So memory is mostly
allocated once. Nothing is allocated for data whose size is known to be too large. A decompression
bomb that does not declare its size is refused when it has filled `limit` bytes.

Work is bounded as well as memory. Blocks that cost a Python call each are counted before the first
is decompressed. The standard library decompresses gzip in a bounded time per input byte.

A caller on an event loop passes `at_once`. A body that takes longer then raises `TooLarge`, mostly
before any work is done on it. The caller decompresses such a body in another thread, because all
codecs release the interpreter lock.
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
"""Lz4 as clients of magic 0 wrote it, with a checksum over the wrong bytes of the frame header."""

AT_ONCE: Final = 4 * 1024 * 1024
"""Maximum number of bytes to decompress on the event loop. This takes some milliseconds."""

_BEGIN: Final = 64 * 1024  # bytes of the first buffer at least
_USUAL_RATIO: Final = 16  # first buffer size per input byte; a larger buffer may follow
_WORTH_A_TRY: Final = 4  # a first buffer must be this many times smaller than the largest
_MOST_BLOCKS: Final = 4096  # blocks counted in advance; counting more takes too long
_MOST_SEQUENCES: Final = 10_000  # sequences counted in advance; a bomb has few and long ones
_BYTES_PER_BLOCK: Final = 256  # least average compressed size, beyond `_MOST_BLOCKS` blocks
_MOST_MEMBERS: Final = 256  # members of gzip data; encoders write one
_GZIP: Final = 31  # zlib's number for a gzip header and trailer
_GZIP_INPUT: Final = 64 * 1024  # bytes for one call: zlib copies the input that it has not consumed
_GZIP_OUTPUT: Final = 1024 * 1024  # bytes of one call: the output is copied into the buffer
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
_LZ4_LONG: Final = 15  # a length that continues in the following bytes
_ALL_ONES: Final = re.compile(b"\xff*")
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK: Final = 128 * 1024
_DEFLATE_RATIO: Final = 1032


class BadCompression(Exception):
    """An error for data that cannot be decompressed, or is larger than allowed."""


class TooLarge(Exception):
    """An error for data that takes too long to decompress on the event loop."""


class _NoRoom(Exception):
    """An error for a buffer that is too small for the decompressed data."""


class Size(NamedTuple):
    """The decompressed size of a body: the size that its data declares, and an upper bound."""

    declared: int | None
    upper_bound: int
    slow: bool = False  # decompression may take long even if the output is small

    @property
    def takes_long(self) -> bool:
        """Whether the body takes too long to be decompressed on the event loop."""
        return self.slow or (self.upper_bound if self.declared is None else self.declared) > AT_ONCE


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
    """Decompress `source` to the start of a buffer. Return the number of decompressed bytes.

    `room_of(size)` returns a writable buffer of `size` bytes or more, with any content. It is
    called again if that buffer was too small. The last buffer has the result. If the size exceeds
    `limit`, `BadCompression` is raised.

    With `at_once`, a body that would take long raises `TooLarge`.
    """
    name, size_of, into = _CODECS[codec]
    allowed = min(limit, AT_ONCE) if at_once else limit
    try:
        size = size_of(source, limit)
        declared, upper_bound, _ = size
        if declared is not None and declared > limit:
            raise BadCompression(
                f"{name} data of {declared} bytes, more than `max_decompressed_bytes` ({limit})"
            )
        if at_once and size.takes_long:
            raise TooLarge
        for room_size in _rooms(declared, min(upper_bound, allowed), len(source)):
            with memoryview(room_of(room_size)) as whole, whole[:allowed] as part:
                try:
                    return into(source, part)
                except _NoRoom:
                    pass
                except cramjam.DecompressionError as error:
                    if "write whole buffer" not in str(error):
                        raise
    except (cramjam.DecompressionError, IndexError, ValueError, struct.error, zlib.error):
        raise BadCompression(f"bad {name} data") from None
    if allowed < min(upper_bound, limit):
        raise TooLarge
    if upper_bound > limit:
        raise _too_much(name, limit)
    raise BadCompression(f"bad {name} data")


def _too_much(name: str, limit: int) -> BadCompression:
    return BadCompression(f"{name} data of more than `max_decompressed_bytes` ({limit}) bytes")


def _rooms(declared: int | None, upper_bound: int, length: int) -> list[int]:
    """Return the buffer sizes to try, in order, for compressed data of `length` bytes.

    The last size is the upper bound.
    """
    if declared is not None:
        return sorted({min(declared, upper_bound), upper_bound})
    first = max(_BEGIN, _USUAL_RATIO * length)
    return [first, upper_bound] if first <= upper_bound // _WORTH_A_TRY else [upper_bound]


def _gzip_size(source: memoryview, _limit: int) -> Size:
    upper_bound = _DEFLATE_RATIO * len(source)
    declared: int = _LITTLE_INT.unpack_from(source, len(source) - 4)[0]
    if declared > upper_bound:
        raise ValueError("a declared size that is not possible")
    return Size(declared, upper_bound, slow=len(source) > _GZIP_AT_ONCE)


def _gzip_into(source: memoryview, room: memoryview) -> int:
    position = used = 0
    for _ in range(_MOST_MEMBERS):
        size, length = _gzip_member_into(source[position:], room[used:])
        used += size
        position += length
        if position == len(source):
            return used
    raise BadCompression(f"gzip data of more than {_MOST_MEMBERS} members")


def _gzip_member_into(source: memoryview, room: memoryview) -> tuple[int, int]:
    """Decompress the first gzip member into `room`. Return its decompressed and compressed size."""
    inflater, position, used = zlib.decompressobj(_GZIP), 0, 0
    piece: bytes | memoryview = b""
    full = False  # whether zlib may have more output without more input
    while not inflater.eof:
        if not piece and not full:
            piece = source[position : position + _GZIP_INPUT]
            position += len(piece)
            if not piece:
                raise ValueError("it ends in the middle of a member")
        max_output = min(_GZIP_OUTPUT, len(room) - used + 1)
        out = inflater.decompress(piece, max_output)
        if len(out) > len(room) - used:
            raise _NoRoom
        room[used : used + len(out)] = out
        used += len(out)
        piece, full = inflater.unconsumed_tail, len(out) == max_output
    return used, position - len(inflater.unused_data)


def _snappy_size(source: memoryview, _limit: int) -> Size:
    total = 0
    for block in _snappy_blocks(source):
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_RATIO * len(block):
            raise ValueError("a declared size that is not possible")
        total += size
    return Size(total, total)


def _snappy_into(source: memoryview, room: memoryview) -> int:
    used = 0
    for block in _snappy_blocks(source):
        used += cramjam.snappy.decompress_raw_into(block, room[used:])
    return used


def _snappy_blocks(source: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of xerial's framing, which Java clients write.

    Without framing, yield all data.
    """
    if bytes(source[:8]) != _XERIAL_MAGIC:
        yield source
        return
    position, max_blocks = _XERIAL_HEAD, _most_blocks(source)
    for _ in range(max_blocks):
        if position >= len(source):
            return
        (length,) = _INT.unpack_from(source, position)
        position += 4
        if not 0 <= length <= len(source) - position:
            raise ValueError("a block beyond the end")
        yield source[position : position + length]
        position += length
    if position < len(source):
        raise BadCompression(f"snappy data of more than {max_blocks} blocks in {len(source)} bytes")


def _most_blocks(source: memoryview) -> int:
    """Return the maximum number of blocks to accept for data of this size.

    Each block costs a Python call. Without the limit, many tiny blocks would take very long.
    """
    return _MOST_BLOCKS + len(source) // _BYTES_PER_BLOCK


def _lz4_size(source: memoryview, limit: int) -> Size:
    if bytes(source[:4]) != _LZ4_MAGIC:
        raise ValueError("no lz4 frame")
    flags, descriptor = source[4], source[5]
    declared: int | None = _LITTLE_LONG.unpack_from(source, 6)[0] if flags & 8 else None
    largest = 1 << (8 + 2 * (descriptor >> 4 & 7))
    blocks, is_all = _lz4_blocks(source)
    upper_bound = largest * len(blocks) if is_all else 255 * len(source)
    if declared is None and upper_bound > limit:
        declared = _lz4_measured(source, blocks, limit)
        if declared is not None and declared > limit:
            raise _too_much("lz4", limit)
    return Size(declared, upper_bound, slow=not is_all)


def _lz4_blocks(source: memoryview) -> tuple[list[tuple[int, int]], bool]:
    """Return the start and length field of each lz4 block, and whether the list is complete.

    The list is cut off at a maximum number of blocks.
    """
    flags = source[4]
    position = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    between = 8 if flags & 16 else 4  # the length of a block and, if present, its checksum
    blocks: list[tuple[int, int]] = []
    while position + 4 <= len(source) and len(blocks) < _MOST_BLOCKS:
        (length,) = _LITTLE_INT.unpack_from(source, position)
        if length & _LZ4_LENGTH == 0:
            break
        blocks.append((position + 4, length))
        position += between + (length & _LZ4_LENGTH)
    is_all = len(blocks) < _MOST_BLOCKS and position + (8 if flags & 4 else 4) >= len(source)
    return blocks, is_all


def _lz4_measured(source: memoryview, blocks: list[tuple[int, int]], limit: int) -> int | None:
    """Return the decompressed size of lz4 blocks, or None if it takes too long to count.

    Counting stops when the size exceeds `limit`.
    """
    size, sequences = 0, 0
    for position, length in blocks:
        if length > _LZ4_LENGTH:  # stored as it is
            size += length & _LZ4_LENGTH
            continue
        end = position + length
        while position < end and size <= limit:
            sequences += 1
            if sequences > _MOST_SEQUENCES:
                return None
            token = source[position]
            literals, position = _lz4_length(source, token >> 4, position + 1)
            position += literals
            size += literals
            if position < end:  # the last sequence of a block has no match
                match, position = _lz4_length(source, token & 15, position + 2)
                size += match + _LZ4_LEAST_MATCH
    return size


def _lz4_length(source: memoryview, length: int, position: int) -> tuple[int, int]:
    """Return a length in an lz4 sequence at `position`, and the position after it.

    `length` is the part of the length that the token of the sequence has.
    """
    if length < _LZ4_LONG:
        return length, position
    ones = _ALL_ONES.match(source, position)
    last = ones.end() if ones else position
    return length + 255 * (last - position) + source[last], last + 1


def _lz4_repaired_into(source: memoryview, room: memoryview) -> int:
    repaired = bytearray(source)
    head = 6 + (8 if repaired[4] & 8 else 0) + (4 if repaired[4] & 1 else 0)
    repaired[head] = _xxh32_of_few(bytes(repaired[4:head])) >> 8 & 0xFF
    used: int = cramjam.lz4.decompress_into(repaired, room)
    return used


def _xxh32_of_few(data: bytes) -> int:
    """Return the xxHash32 of fewer than 16 bytes. The header of an lz4 frame is that short."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = (
        2654435761,
        2246822519,
        3266489917,
        668265263,
        374761393,
    )
    mask, value, position = 0xFFFFFFFF, prime_5 + len(data), 0
    while position + 4 <= len(data):
        value = (value + _LITTLE_INT.unpack_from(data, position)[0] * prime_3) & mask
        value = ((value << 17 | value >> 15) & mask) * prime_4 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * prime_5) & mask
        value = ((value << 11 | value >> 21) & mask) * prime_1 & mask
    value = (value ^ value >> 15) * prime_2 & mask
    value = (value ^ value >> 13) * prime_3 & mask
    return value ^ value >> 16


def _zstd_size(source: memoryview, _limit: int) -> Size:
    unknown = Size(None, 1 << 62, slow=True)
    if bytes(source[:4]) != _ZSTD_MAGIC:
        return unknown  # a skippable frame, or not zstd data
    flags = source[4]
    single, kind = flags >> 5 & 1, flags >> 6
    position = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[kind]
    upper_bound = _zstd_most(source, position + width, 4 if flags & 4 else 0)
    if width:
        declared = int.from_bytes(source[position : position + width], "little") + (
            256 if width == 2 else 0
        )
        return Size(
            declared, unknown.upper_bound, slow=upper_bound is None
        )  # more frames may follow
    return unknown if upper_bound is None else Size(None, upper_bound)


def _zstd_most(source: memoryview, position: int, checksum: int) -> int | None:
    """Return the maximum decompressed size of the zstd blocks from `position` on.

    Return None if there are too many blocks, or data after the last one.
    """
    total = 0
    for _ in range(_MOST_BLOCKS):
        block = int.from_bytes(source[position : position + 3], "little")
        length = block >> 3
        total += _ZSTD_BLOCK if block >> 1 & 3 == 2 else length
        position += 3 + (1 if block >> 1 & 3 == 1 else length)
        if block & 1:
            return total if position + checksum >= len(source) else None
    return None


_CODECS: Final = {
    1: _Codec("gzip", _gzip_size, _gzip_into),
    2: _Codec("snappy", _snappy_size, _snappy_into),
    3: _Codec("lz4", _lz4_size, cramjam.lz4.decompress_into),
    4: _Codec("zstd", _zstd_size, cramjam.zstd.decompress_into),
    LZ4_WITHOUT_HEADER_CHECK: _Codec("lz4", _lz4_size, _lz4_repaired_into),
}
