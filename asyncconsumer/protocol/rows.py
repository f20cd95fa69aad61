"""Array types for numbers, and for rows of numbers with at most one string.

Requests and responses have a row for each partition. These types encode and decode a row in one
call. aiokafka's types handle one field at a time, which takes ten times as long.
"""

import struct
from collections.abc import Sequence
from io import BytesIO
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast

from asyncconsumer.aiokafka_parts import (
    Array,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    UnsignedVarInt32,
)
from asyncconsumer.protocol.flexible import TAGS, TaggedFields

FieldValue: TypeAlias = Any  # the Python type depends on the type of the field

CODES: Final = {Int8: "b", Int16: "h", Int32: "i", Int64: "q", TaggedFields: "x"}
"""The `struct` codes of number types. Empty tagged fields are one zero byte."""


def plain_array(of: Any, *, flexible: bool) -> Array:  # noqa: ANN401 - aiokafka's types are untyped
    """Return aiokafka's own array type, which encodes and decodes one field at a time."""
    return CompactArray(of) if flexible else Array(of)


class _Packed(Array):
    """The base class of the array types. An encoded item takes `min_size` bytes or more."""

    def __init__(self, of: Any, min_size: int, *, flexible: bool) -> None:  # noqa: ANN401 - as above
        super().__init__(of)
        self._flexible = flexible
        self._min_size = min_size

    def _encode_count(self, count: int) -> bytes:
        """Return the encoded number of items. A count of -1 means a null array."""
        encoded = UnsignedVarInt32.encode(count + 1) if self._flexible else Int32.encode(count)
        return bytes(encoded)

    def _decode_count(self, data: BytesIO) -> int:
        """Read the number of items, or -1 for a null array.

        Raise ValueError if that many items cannot fit into the remaining bytes.
        """
        count = UnsignedVarInt32.decode(data) - 1 if self._flexible else Int32.decode(data)
        remaining = len(data.getvalue()) - data.tell()
        if count < -1 or count * self._min_size > remaining:
            raise ValueError(f"an array of {count} items in {remaining} bytes")
        return int(count)


class PackedNumbers(_Packed):
    """An array of numbers of one type."""

    def __init__(self, of: Any, *, flexible: bool) -> None:  # noqa: ANN401 - as above
        self._code = CODES[of]
        super().__init__(of, struct.calcsize(f">{self._code}"), flexible=flexible)

    def encode(self, items: Sequence[int] | None) -> bytes:
        """Return the encoded array: the number of items, then the items."""
        if items is None:
            return self._encode_count(-1)
        return self._encode_count(len(items)) + struct.pack(f">{len(items)}{self._code}", *items)

    def decode(self, data: BytesIO) -> list[int] | None:
        """Read an array of numbers. Return None for a null array."""
        if (count := self._decode_count(data)) < 0:
            return None
        return list(struct.unpack(f">{count}{self._code}", data.read(count * self._min_size)))


class PackedRows(_Packed):
    """An array of rows of numbers. A row to encode is an object with one attribute per field."""

    def __init__(self, row: Schema, *, flexible: bool) -> None:
        self._row = struct.Struct(">" + "".join(CODES[field] for field in row.fields))
        super().__init__(row, self._row.size, flexible=flexible)
        self._plain = plain_array(row, flexible=flexible)
        self._pack = self._row.pack
        self._values = attrgetter(*(name for name in row.names if name != TAGS))

    @classmethod
    def fits(cls, row: Schema) -> bool:
        """Return whether rows of this schema consist of two or more numbers and nothing else."""
        numbers = [field for field in row.fields if field is not TaggedFields]
        return len(numbers) > 1 and all(map(_is_number, numbers))

    def encode(self, items: Sequence[FieldValue]) -> bytes:
        """Return the encoded array: the number of rows, then the rows."""
        pack, values = self._pack, self._values
        return b"".join([self._encode_count(len(items)), *(pack(*values(row)) for row in items)])

    def decode(self, data: BytesIO) -> list[FieldValue] | None:
        """Read an array as a list of tuples, one for each row. Return None for a null array.

        Rows without tagged fields are unpacked in one call.
        """
        start, size = data.tell(), self._row.size
        if (count := self._decode_count(data)) < 0:
            return None
        packed = data.read(count * size)
        # The last byte of a flexible row is the number of its tagged fields.
        if not self._flexible:
            return list(self._row.iter_unpack(packed))
        if not any(packed[size - 1 :: size]):
            no_tags: dict[int, bytes] = {}
            return [(*row, no_tags) for row in self._row.iter_unpack(packed)]
        data.seek(start)
        return cast("list[FieldValue] | None", self._plain.decode(data))


class TextRows(_Packed):
    """An array whose rows have numbers and one string each, such as offsets with their metadata.

    Rows with an empty string are the most frequent ones, and are handled fastest. A row to encode
    is an object with one attribute per field.
    """

    def __init__(self, row: Schema, *, flexible: bool) -> None:
        kinds = [field for field in row.fields if field is not TaggedFields]
        text_index = next(index for index, kind in enumerate(kinds) if not _is_number(kind))
        before = "".join(CODES[kind] for kind in kinds[:text_index])
        after = "".join(CODES[kind] for kind in kinds[text_index + 1 :])
        length, tags = ("B", "B") if flexible else ("h", "")
        self._text_index = text_index
        self._empty = 1 if flexible else 0  # the length of an empty string; one less is null
        self._before = struct.Struct(f">{before}")
        self._after = struct.Struct(f">{after}{tags}")
        self._whole = struct.Struct(f">{before}{length}{after}{tags}")  # the string is empty
        super().__init__(row, self._whole.size, flexible=flexible)
        self._values = attrgetter(*(name for name in row.names if name != TAGS))
        self._no_tags = (0,) if flexible else ()

    @classmethod
    def fits(cls, row: Schema) -> bool:
        """Return whether rows of this schema consist of one string and two or more numbers."""
        kinds = [field for field in row.fields if field is not TaggedFields]
        texts = [kind for kind in kinds if isinstance(kind, String | CompactString)]
        numbers = sum(map(_is_number, kinds))
        return len(texts) == 1 and 1 < numbers == len(kinds) - 1

    def encode(self, items: Sequence[FieldValue]) -> bytes:
        """Return the encoded array: the number of rows, then the rows."""
        return b"".join([self._encode_count(len(items)), *map(self._encode_row, items)])

    def _encode_row(self, row: FieldValue) -> bytes:
        text_index, no_tags = self._text_index, self._no_tags
        values = self._values(row)
        if not (text := values[text_index]):
            length = self._empty - (text is None)
            return self._whole.pack(
                *values[:text_index], length, *values[text_index + 1 :], *no_tags
            )
        encoded = text.encode()
        length = len(encoded) + self._empty
        size = UnsignedVarInt32.encode(length) if self._flexible else Int16.encode(length)
        tail = self._after.pack(*values[text_index + 1 :], *no_tags)
        return b"".join((self._before.pack(*values[:text_index]), size, encoded, tail))

    def decode(self, data: BytesIO) -> list[FieldValue] | None:
        """Read an array as a list of tuples, one for each row. Return None for a null array."""
        if (count := self._decode_count(data)) < 0:
            return None
        raw, position = data.getvalue(), data.tell()
        text_at, empty, whole = self._text_index, self._empty, self._whole
        size, unpack = whole.size, whole.unpack_from
        tags: tuple[dict[int, bytes], ...] = ({},) if self._flexible else ()
        end = -1 if self._flexible else None  # leaves out the number of tagged fields
        rows: list[FieldValue] = []
        for _ in range(count):
            row = unpack(raw, position)
            length = row[text_at]
            if empty - 1 <= length <= empty and not (tags and row[-1]):
                text = "" if length == empty else None
                rows.append((*row[:text_at], text, *row[text_at + 1 : end], *tags))
                position += size
            else:
                data.seek(position)
                rows.append(self._decode_row(data))
                position = data.tell()
        data.seek(position)
        return rows

    def _decode_row(self, data: BytesIO) -> FieldValue:
        """Read a row whose string is not empty, or which has tagged fields."""
        before = self._before.unpack(data.read(self._before.size))
        text = (CompactString if self._flexible else String)("utf-8").decode(data)
        if not self._flexible:
            return (*before, text, *self._after.unpack(data.read(self._after.size)))
        after = self._after.unpack(data.read(self._after.size))
        if after[-1]:
            data.seek(-1, 1)
            return (*before, text, *after[:-1], TaggedFields.decode(data))
        return (*before, text, *after[:-1], {})


def _is_number(kind: Any) -> bool:  # noqa: ANN401 - as above
    return kind is not TaggedFields and isinstance(kind, type) and kind in CODES
