"""Message sets of magic 0 and 1, in pure Python.

Brokers before 0.11 store this format, and newer ones send it down-converted. An entry is one
message. A compressed message is a wrapper: its value decompresses to a set of messages. Their
offsets are absolute in magic 0, and relative to the first one in magic 1. The wrapper carries the
offset of its last message.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from asyncconsumer.records.batch_v2 import BodyPart, Fields, record_damage
from asyncconsumer.records.byte_reader import CUT, INT_32, INT_64, ByteReader, DecodeError, fail

_HEAD: Final = 12
_AFTER_ATTRIBUTES: Final = 18
_LAST_CODEC: Final = 3  # zstd came with magic 2
_LEAST: Final = (14, 22)  # least size of a message, by magic


class LegacyMessage(NamedTuple):
    """A message of magic 0 or 1.

    Inside a compressed message of magic 1, its offset is relative.
    """

    offset: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class InnerMessage(NamedTuple):
    """The offsets of the messages inside a compressed message (a wrapper).

    `base_offset` is the absolute offset to which their stored offsets are relative. `first` is the
    stored offset of the first message, or -1 if the stored offsets are not in order.
    """

    base_offset: int
    first: int


def message_after(body: bytes, position: int) -> int:
    """Return the position after the message at `position`, whose length `survey` has checked."""
    return position + _HEAD + int(INT_32.unpack_from(body, position + 8)[0])


def read_message(data: bytes, position: int, end: int) -> LegacyMessage:
    """Return the message between the positions `position` and `end` of `data`."""
    offset: int = INT_64.unpack_from(data, position)[0]
    reader = ByteReader(data, position + _AFTER_ATTRIBUTES, end)
    timestamp = -1
    if data[position + 16] == 1:
        if reader.end - reader.position < 8:
            fail(CUT)
        (timestamp,) = INT_64.unpack_from(data, reader.position)
        reader.position += 8
    key = reader.sized("key", _length(reader))
    value = reader.sized("value", _length(reader))
    if reader.position != reader.end:
        fail("a length that does not match its fields")
    return LegacyMessage(offset, data[position + 17], timestamp, key, value)


def check_wrapper(wrapper: LegacyMessage) -> bytes:
    """Check a compressed message. Return its compressed value."""
    if wrapper.attributes & 7 > _LAST_CODEC:
        fail(f"unknown compression codec {wrapper.attributes & 7}")
    if wrapper.value is None:
        fail("a compressed message set without a value")
    return wrapper.value


def survey(body: bytes, magic: int, wrapper_offset: int) -> InnerMessage:
    """Check the messages inside a compressed message, whose decompressed value is `body`.

    Return their base offset and the stored offset of the first one. The base offset follows from
    `wrapper_offset`, the absolute offset of the last message.
    """
    position, count, first, last = 0, 0, 0, -1
    while position < len(body):
        available = len(body) - position
        length = INT_32.unpack_from(body, position + 8)[0] if available >= _HEAD else 0
        if length < _LEAST[magic] or available < _HEAD + length:
            fail("a compressed message set that ends in the middle")
        if body[position + 16] != magic:
            inner = (body[position + 16] ^ 0x80) - 0x80
            fail(f"a message of magic {inner} inside one of magic {magic}")
        (last,) = INT_64.unpack_from(body, position)
        first = last if count == 0 else first
        count += 1
        position += _HEAD + length
    if count == 0:
        fail("an empty compressed message set")
    if not 0 <= last <= wrapper_offset:
        fail("a compressed message set whose offsets do not match")
    return InnerMessage(wrapper_offset - last if magic else 0, first if 0 <= first <= last else -1)


def read_messages(
    part: BodyPart, start: int, base_offset: int, wrapper: LegacyMessage, magic: int
) -> Iterator[Fields]:
    """Yield the messages in a part of the decompressed value of a compressed message.

    Reading starts at the position `start` of the whole value.
    """
    body, position, append_time = part.data, start - part.start, is_append_time(wrapper, magic)
    while position < len(body):
        end = message_after(body, position)
        try:
            message = _read_inner(body, position, end, wrapper.offset - base_offset)
        except DecodeError as damage:
            raise record_damage(damage, wrapper.offset) from None
        position, offset = end, base_offset + message.offset
        behind = part.start + position
        after = (offset if behind < part.whole else wrapper.offset) + 1
        timestamp = wrapper.timestamp if append_time else message.timestamp
        yield offset, after, timestamp, message.key, message.value, (), behind


def alone(message: LegacyMessage) -> Iterator[Fields]:
    """Yield the fields of a message that is not compressed."""
    offset = message.offset
    yield offset, offset + 1, message.timestamp, message.key, message.value, (), 0


def is_append_time(message: LegacyMessage, magic: int) -> bool:
    """Return whether the broker set the message's timestamp when it appended the message."""
    return magic == 1 and bool(message.attributes & 8)


def _read_inner(body: bytes, position: int, end: int, max_offset: int) -> LegacyMessage:
    message = read_message(body, position, end)
    if message.attributes & 7:
        fail("compression inside compression")
    if not 0 <= message.offset <= max_offset:
        fail("an offset outside its batch")
    return message


def _length(reader: ByteReader) -> int:
    if reader.end - reader.position < 4:
        fail(CUT)
    (length,) = INT_32.unpack_from(reader.data, reader.position)
    reader.position += 4
    return int(length)
