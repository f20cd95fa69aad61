"""A message that stands in for aiokafka's `ConsumerRecord`."""

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


class ConsumerRecord(Message[Any, Any]):
    """A message with the attributes of aiokafka's `ConsumerRecord`. It is immutable.

    It is an instance of that class for `isinstance`, ``match`` and `dataclasses`. It does not
    inherit from it, because a dictionary of each record would cost more than decoding the record.
    Copies by `dataclasses.replace`, `copy` and `pickle` are plain records of aiokafka.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment] # as aiokafka's
    __dataclass_fields__ = aiokafka.ConsumerRecord.__dataclass_fields__
    __class__ = property(lambda _: aiokafka.ConsumerRecord)

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
