"""A parser of kcat's format strings, which define how a record is printed."""

import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.records import decoding

LETTERS: Final = (
    "%t topic, %p partition, %o offset, %k key, %s value, %K key length, %S value length (-1 for "
    "null), %R value length as 4 bytes, %T timestamp in ms, %h headers, %% a percent sign"
)

_Column = Callable[[Sequence[decoding.Record]], Iterable[bytes]]

_PIECE: Final = re.compile(
    rb"%(?P<letter>.?)|\\(?P<escape>x[0-9a-fA-F]{2}|.?)|(?P<text>[^%\\]+)", re.DOTALL
)
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\"}


class Format:
    """A parsed format string. It formats many records at a time, column by column."""

    def __init__(self, text: str) -> None:
        data = os.fsencode(text)  # the exact bytes of the command line
        pieces = [_piece(match, text) for match in _PIECE.finditer(data)]
        if not pieces:
            raise ConfigError("--format is empty. Set a format such as '%k %s\\n'.")
        self._pieces = pieces

    def render(self, records: Sequence[decoding.Record]) -> bytes:
        """Return the formatted records of one partition as bytes, without separators."""
        if not records:
            return b""
        columns: list[Iterable[bytes]] = []
        fixed = b""  # pieces that are the same for all records, not yet added to the columns
        for piece in self._pieces:
            if isinstance(piece, bytes):
                fixed += piece
            elif piece in _SAME_IN_PARTITION:
                fixed += next(iter(piece(records[:1])))
            else:
                columns += [repeat(fixed, len(records)), piece(records)]
                fixed = b""
        columns.append(repeat(fixed, len(records)))
        return b"".join(chain.from_iterable(zip(*columns, strict=True)))


def _piece(match: re.Match[bytes], text: str) -> bytes | _Column:
    if (letter := match["letter"]) is not None:
        if letter == b"%":
            return b"%"
        try:
            return _COLUMNS[letter]
        except KeyError:
            raise ConfigError(
                f"--format {text!r} has the unknown code {_repr(match)}. Known codes: {LETTERS}."
            ) from None
    if (escape := match["escape"]) is not None:
        if len(escape) == 3:
            return bytes.fromhex(escape[1:].decode())
        try:
            return _ESCAPES[escape]
        except KeyError:
            raise ConfigError(
                f"--format {text!r} has the unknown escape {_repr(match)}. "
                r"Known escapes: \n, \t, \r, \xNN and \\."
            ) from None
    return match["text"]


def _repr(match: re.Match[bytes]) -> str:
    return repr(os.fsdecode(match[0])).replace("\\\\", "\\")


# --- columns -----------------------------------------------------------------------------------


def _topics(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [record.topic.encode() for record in records]


def _partitions(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [b"%d" % record.partition for record in records]


def _offsets(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [b"%d" % record.offset for record in records]


def _keys(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [record.key or b"" for record in records]


def _values(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [record.value or b"" for record in records]


def _key_lengths(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [b"%d" % _length(record.key) for record in records]


def _value_lengths(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [b"%d" % _length(record.value) for record in records]


def _binary_lengths(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    pack = struct.Struct(">i").pack
    return [pack(_length(record.value)) for record in records]


def _timestamps(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [b"%d" % record.timestamp for record in records]


def _headers(records: Sequence[decoding.Record]) -> Iterable[bytes]:
    return [b",".join(_header(*header) for header in record.headers) for record in records]


def _header(name: str, value: bytes | None) -> bytes:
    # kcat prints null as a word in headers, and only there
    return b"%b=%b" % (name.encode(), b"NULL" if value is None else value)


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_COLUMNS: Final[Mapping[bytes, _Column]] = {
    b"t": _topics,
    b"p": _partitions,
    b"o": _offsets,
    b"k": _keys,
    b"s": _values,
    b"K": _key_lengths,
    b"S": _value_lengths,
    b"R": _binary_lengths,
    b"T": _timestamps,
    b"h": _headers,
}
_SAME_IN_PARTITION: Final = (_topics, _partitions)
