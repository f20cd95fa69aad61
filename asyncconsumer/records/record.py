"""The record in pure Python, and functions that the compiled record uses, too."""

from collections.abc import Iterable
from operator import index
from typing import Final, NoReturn, final

from asyncconsumer.errors import ConfigError

Headers = tuple[tuple[str, bytes | None], ...]

_SHOWN: Final = 40  # bytes of a key or value, so that a repr fits one log line


@final
class Record:
    """A record of one partition. It owns its bytes and refers to no buffer.

    `timestamp` is in milliseconds since 1970. `timestamp_type` is 0 if the producer set it, 1 if
    the broker set it on append, and -1 in the old format without timestamps. `value` is None for a
    tombstone.
    """

    __slots__ = (
        "headers", "key", "offset", "partition", "timestamp", "timestamp_type", "topic", "value",
    )  # fmt: skip
    __match_args__ = (
        "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers",
    )  # fmt: skip
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        if timestamp_type not in (-1, 0, 1):
            raise ValueError("timestamp_type must be 0 (create), 1 (log append) or -1 (none)")
        fields = (
            str(topic),
            index(partition),
            index(offset),
            index(timestamp),
            index(timestamp_type),
            _exact_bytes(key, "key"),
            _exact_bytes(value, "value"),
            tuple(map(_exact_header, headers)),
        )
        fill(self, *fields)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Record does not change: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Record does not change: cannot delete {name!r}")

    @property
    def record(self) -> "Record":
        """The record itself. A `Message` has the same attribute."""
        return self

    def commit(self) -> NoReturn:
        """Raise `ConfigError`, because only a `Message` can be committed."""
        refuse_commit(self.topic, self.partition, self.offset)

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return show(
            self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type,
            self.key, self.value, self.headers,
        )  # fmt: skip

    def __reduce__(self) -> tuple[object, ...]:
        return restore, self._fields()


_set_topic, _set_partition, _set_offset, _set_timestamp = (
    vars(Record)[name].__set__ for name in ("topic", "partition", "offset", "timestamp")
)
_set_timestamp_type, _set_key, _set_value, _set_headers = (
    vars(Record)[name].__set__ for name in ("timestamp_type", "key", "value", "headers")
)


def fill(
    record: Record,
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> Record:
    """Set the fields of a new `Record` and return it.

    The values are not checked, because the decoder made them.
    """
    _set_topic(record, topic)
    _set_partition(record, partition)
    _set_offset(record, offset)
    _set_timestamp(record, timestamp)
    _set_timestamp_type(record, timestamp_type)
    _set_key(record, key)
    _set_value(record, value)
    _set_headers(record, headers)
    return record


def show(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> str:
    """Return the repr of a record, on one line and with long values shortened."""
    pairs = ", ".join(f"({_short_text(name)}, {_short(data)})" for name, data in headers[:8])
    more = f", ... {len(headers) - 8} more" if len(headers) > 8 else ""
    return (
        f"Record(topic={topic!r}, partition={partition}, offset={offset}, timestamp={timestamp}, "
        f"timestamp_type={timestamp_type}, key={_short(key)}, value={_short(value)}, "
        f"headers=({pairs}{more}))"
    )


def refuse_commit(topic: str, partition: int, offset: int) -> NoReturn:
    """Raise `ConfigError`, because the consumer commits this record itself."""
    raise ConfigError(
        f"{topic}[{partition}]@{offset} has no commit(), because the consumer commits it when the "
        "next record is requested. To choose the time, set `commit_policy='manual'`, or call "
        "consumer.commit(record)"
    )


def restore(*fields: object) -> Record:
    """Create an unpickled record, of the `Record` class of the decoder in this process."""
    from asyncconsumer.records import decoding

    return decoding.Record(*fields)  # type: ignore[arg-type]  # the result of `_fields()`


def _exact_bytes(value: bytes | None, field: str) -> bytes | None:
    if value is not None and type(value) is not bytes:
        raise TypeError(f"{field} must be bytes or None, not {type(value).__name__}")
    return value


def _exact_header(header: tuple[str, bytes | None]) -> tuple[str, bytes | None]:
    pair = tuple(header)
    if len(pair) != 2 or type(pair[0]) is not str:
        raise TypeError("a header must be a pair of str and bytes or None")
    name, value = header
    return name, _exact_bytes(value, "a header's value")


def _short(data: bytes | None) -> str:
    if data is None or len(data) <= _SHOWN:
        return repr(data)
    return f"{data[:_SHOWN]!r}... ({len(data)} bytes)"


def _short_text(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}... ({len(text)} characters)"
