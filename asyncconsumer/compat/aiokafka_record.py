"""A subclass of aiokafka's `ConsumerRecord` that the record decoder creates."""

from typing import Any

import aiokafka

from asyncconsumer.records.decoding import Message

_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "headers",
)


class ConsumerRecord(Message[Any, Any], aiokafka.ConsumerRecord[Any, Any]):
    """A `ConsumerRecord` of aiokafka that the record decoder has created. It is immutable.

    Copies by `dataclasses.replace`, `copy` and `pickle` are plain records of aiokafka.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment] # as aiokafka's

    def __new__(cls, *args: Any, **fields: Any) -> Any:  # noqa: ANN401, D102 - for `replace`
        return aiokafka.ConsumerRecord(*args, **fields)

    @property
    def checksum(self) -> None:
        """Always None, as for all records since Kafka 0.11."""
        return

    @property
    def serialized_key_size(self) -> int:
        """The size of the key in bytes, or -1 if there is none."""
        key = self.record.key
        return -1 if key is None else len(key)

    @property
    def serialized_value_size(self) -> int:
        """The size of the value in bytes, or -1 if there is none."""
        value = self.record.value
        return -1 if value is None else len(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, aiokafka.ConsumerRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __repr__ = aiokafka.ConsumerRecord.__repr__

    def __reduce__(self) -> tuple[object, ...]:
        return aiokafka.ConsumerRecord, tuple(getattr(self, name) for name in _FIELDS)
