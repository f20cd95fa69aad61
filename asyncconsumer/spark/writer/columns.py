"""The columns of rows to write, as in Spark's own Kafka sink, and their conversion to records."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from asyncconsumer.errors import ConfigError, UnwritableRow
from asyncconsumer.producer.bulk import BulkRecord
from asyncconsumer.records.record import Headers

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES: Final = ("string", "binary")
_TYPES: Final = {
    "topic": ("string",),
    "key": _BYTES,
    "value": _BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


class RecordColumns:
    """The columns that make up Kafka records. Other columns are ignored.

    `declared` are the names and types of all columns. If `topic` is given, it is the topic of all
    records, and the column `topic` is ignored. Raise ConfigError if a column is missing or has a
    wrong type.
    """

    def __init__(self, declared: Sequence[tuple[str, str]], topic: str | None) -> None:
        self._topic = topic
        names = [name for name, _ in declared]
        self.positions: Final = {name: names.index(name) for name in _TYPES if name in names}
        if topic is not None:
            self.positions.pop("topic", None)
        elif "topic" not in names:
            raise ConfigError(
                "topic option required when no 'topic' attribute is present. Use the topic option "
                "for setting a topic."
            )
        if "value" not in names:
            raise ConfigError("Required attribute 'value' not found")
        for name, position in self.positions.items():
            kind = declared[position][1]
            if kind not in _TYPES[name]:
                raise ConfigError(
                    f"{name} attribute unsupported type {kind}. {name} must be a(n) "
                    f"{' or '.join(_TYPES[name])}"
                )

    def records(self, batch: "pa.RecordBatch") -> Iterator[BulkRecord]:
        """Return the rows of a batch as records.

        If a row cannot be written, raise UnwritableRow before the first record.
        """
        return zip(
            self._topics(batch),
            self._bytes(batch, "key"),
            self._bytes(batch, "value"),
            self._headers(batch),
            self._partitions(batch),
            strict=False,  # `repeat` has no end; the value column always exists and ends the zip
        )

    def _column(self, batch: "pa.RecordBatch", name: str) -> "pa.Array[Any] | None":
        position = self.positions.get(name)
        return None if position is None else batch.column(position)

    def _topics(self, batch: "pa.RecordBatch") -> Iterable[str]:
        column = self._column(batch, "topic")
        if column is None:
            return repeat(self._topic or "")
        if column.null_count:
            raise UnwritableRow(
                "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the producer contains a "
                "null topic. Use the `topic` option for setting a default topic."
            )
        topics: list[str] = column.dictionary_encode().to_pylist()  # one object for equal names
        return topics

    def _bytes(self, batch: "pa.RecordBatch", name: str) -> Iterable[bytes | None]:
        column = self._column(batch, name)
        return repeat(None) if column is None else bytes_of(column)

    def _headers(self, batch: "pa.RecordBatch") -> Iterable[Headers]:
        column = self._column(batch, "headers")
        if column is None or column.null_count == len(column):
            return repeat(())
        return [_pairs(headers) for headers in column.to_pylist()]

    def _partitions(self, batch: "pa.RecordBatch") -> Iterable[int | None]:
        column = self._column(batch, "partition")
        if column is None:
            return repeat(None)
        numbers: list[int | None] = column.to_pylist()
        for number in numbers:
            if number is not None and number < 0:
                raise UnwritableRow(
                    f"Invalid partition: {number}. Partition number should always be non-negative "
                    "or null."
                )
        return numbers


def bytes_of(column: "pa.Array[Any]") -> list[bytes | None]:
    """Return the values of a column of text or bytes as bytes."""
    import pyarrow as pa

    large = column.type in (pa.large_string(), pa.large_binary())
    column = column.cast(pa.large_binary() if large else pa.binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _pairs(headers: "list[dict[str, Any] | None] | None") -> Headers:
    pairs: list[tuple[str, bytes | None]] = []
    for header in headers or ():
        if header is None or header["key"] is None:
            raise UnwritableRow("A header or its key is null. Kafka needs a key for each header.")
        pairs.append((header["key"], header["value"]))
    return tuple(pairs)
