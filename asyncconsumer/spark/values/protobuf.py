"""A decoder of Protobuf values that returns the same values as Spark's `from_protobuf`."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from asyncconsumer.serdes.models import package
from asyncconsumer.spark.options.protobuf_options import ProtobufOptions
from asyncconsumer.spark.values.decoder import Undecodable
from asyncconsumer.spark.values.protobuf_columns import MessageColumns
from asyncconsumer.spark.values.protobuf_schema import Descriptor, find_message, is_message


class ProtobufDecoder:
    """A decoder that parses each value with the protobuf package.

    Protobuf fields that are not in the schema of the query are left out.
    """

    def __init__(self, kind: "pa.DataType", options: ProtobufOptions) -> None:
        message = find_message(options.descriptor_set, options.message_name)
        factory = package("google.protobuf.message_factory", "Protobuf")
        self._parse = factory.GetMessageClass(message).FromString
        columns = MessageColumns(emit_defaults=options.emit_defaults)
        self._column = columns.make_struct(message, kind, "value")
        self._unknown = package("google.protobuf.unknown_fields", "Protobuf").UnknownFieldSet
        self._numbers = frozenset(field.number for field in message.fields)
        self._has_required = _has_required(message, set())
        error = package("google.protobuf.message", "Protobuf").DecodeError
        self._decode_errors = (error, ValueError, OverflowError, pa.ArrowException)

    def coerce(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """Return the values unchanged, because Protobuf values need no coercion."""
        return values, {}

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """Return the decoded values as an Arrow column of structs."""
        try:
            messages = list(map(self._parse, values.to_pylist()))
            self._check(messages)
            return self._column(messages)
        except self._decode_errors as error:
            raise Undecodable(str(error)) from None

    def _check(self, messages: Sequence[Any]) -> None:
        """Raise Undecodable for messages of another type and for incomplete messages.

        The protobuf package accepts both.
        """
        unknown_fields, numbers = self._unknown, self._numbers
        for message in messages:
            unknown = unknown_fields(message)
            if len(unknown) and not numbers.isdisjoint(field.field_number for field in unknown):
                raise Undecodable("a field has another type than in the descriptors")
            if self._has_required and not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors())
                raise Undecodable(f"required fields are missing: {missing}")


def _has_required(message: Descriptor, seen: set[str]) -> bool:
    """Return whether a message type, or a type nested in it, has required fields.

    `seen` are the types checked already.
    """
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
