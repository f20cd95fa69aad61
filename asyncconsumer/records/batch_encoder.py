"""The encoding of whole record batches, as producers write them: header, checksum, compression."""

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import cramjam

from asyncconsumer.config.choices import CompressionType
from asyncconsumer.records.decoding import crc32c

if TYPE_CHECKING:
    from asyncconsumer.records.decoding import RecordEncoder

_TRANSACTIONAL: Final = 0x10
_MAGIC: Final = 2
_NO_EPOCH: Final = -1  # leader epoch, which the broker sets
_CHECKED: Final = Struct(">hiqqqhii")  # the part of the header that the checksum covers
_UNCHECKED: Final = Struct(">qiibI")
_AFTER_LENGTH: Final = 12  # bytes before and in the field `length`, which it does not count
_XERIAL_HEAD: Final = b"\x82SNAPPY\x00" + Struct(">ii").pack(1, 1)
_SNAPPY_BLOCK: Final = 32 * 1024
_LENGTH: Final = Struct(">i")
# magic, version 1 with independent blocks of up to 64 KiB, and the checksum of these two bytes
_LZ4_HEAD: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_LENGTH: Final = Struct("<I")
_LZ4_STORED: Final = 1 << 31  # the block is not compressed
_LZ4_END: Final = bytes(4)


class BatchProducer(NamedTuple):
    """The producer id and epoch of a record batch, and its first sequence number."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


def encode_batch(
    encoder: "RecordEncoder",
    producer: BatchProducer,
    *,
    compression: CompressionType = "none",
    transactional: bool = False,
) -> bytes:
    """Return the record batch with the records in `encoder`, which has at least one."""
    number, compress = _CODECS[compression]
    body = compress(encoder.body())
    count = encoder.count
    checked = _CHECKED.pack(
        number | (_TRANSACTIONAL if transactional else 0),
        count - 1,
        encoder.first_timestamp,
        encoder.max_timestamp,
        *producer,
        count,
    )
    checked += body
    length = _UNCHECKED.size - _AFTER_LENGTH + len(checked)
    return _UNCHECKED.pack(0, length, _NO_EPOCH, _MAGIC, crc32c(checked)) + checked


def _none(body: bytes) -> bytes:
    return body


def _gzip(body: bytes) -> bytes:
    return bytes(cramjam.gzip.compress(body))


def _snappy(body: bytes) -> bytes:
    """Return the compressed body in xerial's framing, which Java clients read and write."""
    parts = [_XERIAL_HEAD]
    for start in range(0, len(body), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(body[start : start + _SNAPPY_BLOCK]))
        parts += _LENGTH.pack(len(block)), block
    return b"".join(parts)


def _lz4(body: bytes) -> bytes:
    """Return the compressed body as an lz4 frame of independent blocks.

    Brokers cannot read a frame with dependent blocks.
    """
    parts = [_LZ4_HEAD]
    for start in range(0, len(body), _LZ4_BLOCK):
        block = body[start : start + _LZ4_BLOCK]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += _LZ4_LENGTH.pack(len(packed)), packed
        else:
            parts += _LZ4_LENGTH.pack(len(block) | _LZ4_STORED), block
    parts.append(_LZ4_END)
    return b"".join(parts)


def _zstd(body: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(body))


_CODECS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "none": (0, _none),
    "gzip": (1, _gzip),
    "snappy": (2, _snappy),
    "lz4": (3, _lz4),
    "zstd": (4, _zstd),
}
