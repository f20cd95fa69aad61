"""Protobuf values: what Spark's `from_protobuf` reads."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from asyncconsumer.serdes.models import package
from asyncconsumer.spark.options.protobuf_options import ProtobufOptions
from asyncconsumer.spark.values.decoder import Undecodable
from asyncconsumer.spark.values.protobuf_columns import MessageColumns
from asyncconsumer.spark.values.protobuf_schema import Descriptor, is_message, message_of


class ProtobufDecoder:
    """Has protobuf parse each value. Fields that the schema of the query has not are left out."""

    def __init__(self, kind: "pa.DataType", options: ProtobufOptions) -> None:
        message = message_of(options.descriptor_set, options.message_name)
        factory = package("google.protobuf.message_factory", "Protobuf")
        self._parse = factory.GetMessageClass(message).FromString
        self._column = MessageColumns(emit_defaults=options.emit_defaults).of(
            message, kind, "value"
        )
        self._unknown = package("google.protobuf.unknown_fields", "Protobuf").UnknownFieldSet
        self._numbers = frozenset(field.number for field in message.fields)
        self._may_lack = _has_required(message, set())
        damaged = package("google.protobuf.message", "Protobuf").DecodeError
        self._damaged = (damaged, ValueError, OverflowError, pa.ArrowException)

    def mended(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """As they are: to try one value costs no more than to look at it."""
        return values, {}

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """A column of structs."""
        try:
            messages = list(map(self._parse, values.to_pylist()))
            self._check(messages)
            return self._column(messages)
        except self._damaged as error:
            raise Undecodable(str(error)) from None

    def _check(self, messages: Sequence[Any]) -> None:
        """Raise for what protobuf itself takes: some other message, or one that is not whole."""
        unknown, numbers = self._unknown, self._numbers
        for message in messages:
            left = unknown(message)
            if len(left) and not numbers.isdisjoint(one.field_number for one in left):
                raise Undecodable("a field is of another type than in the descriptors")
            if self._may_lack and not message.IsInitialized():
                lacking = ", ".join(message.FindInitializationErrors())
                raise Undecodable(f"required fields are missing: {lacking}")


def _has_required(message: Descriptor, seen: set[str]) -> bool:
    """Whether it, or a message in it, has fields that must be there."""
    seen.add(message.full_name)
    return any(
        field.is_required
        or (
            is_message(field)
            and field.message_type.full_name not in seen
            and _has_required(field.message_type, seen)
        )
        for field in message.fields
    )
