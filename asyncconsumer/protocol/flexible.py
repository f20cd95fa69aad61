"""Flexible versions of messages (KIP-482): tagged fields, and headers with tagged fields.

aiokafka changed its declarations between 0.14 and 0.15, so this module does not use them.
"""

from io import BytesIO
from typing import ClassVar, Final

from asyncconsumer.aiokafka_parts import (
    AbstractType,
    Int16,
    Int32,
    RequestStruct,
    Schema,
    String,
    Struct,
    UnsignedVarInt32,
)

TAGS: Final = "tags"


class TaggedFields(AbstractType[dict[int, bytes]]):
    """The optional fields at the end of a row, by their number (tag), with encoded values."""

    @classmethod
    def encode(cls, value: dict[int, bytes]) -> bytes:
        """Return the encoded fields in ascending order of tags, as brokers require."""
        parts = [UnsignedVarInt32.encode(len(value))]
        for tag, field in sorted(value.items()):
            parts += UnsignedVarInt32.encode(tag), UnsignedVarInt32.encode(len(field)), field
        return b"".join(parts)

    @classmethod
    def decode(cls, data: BytesIO) -> dict[int, bytes]:
        """Read the optional fields and return their values by tag.

        If the fields are out of order or incomplete, raise ValueError.
        """
        fields: dict[int, bytes] = {}
        last = -1
        for _ in range(UnsignedVarInt32.decode(data)):
            tag, size = UnsignedVarInt32.decode(data), UnsignedVarInt32.decode(data)
            if tag <= last:
                raise ValueError(f"Invalid or out-of-order tag {tag}")
            fields[tag] = data.read(size)
            if len(fields[tag]) != size:
                raise ValueError(f"Buffer underrun decoding tag {tag}")
            last = tag
        return fields


class _RequestHeader(Struct):
    SCHEMA = Schema(
        ("api_key", Int16),
        ("api_version", Int16),
        ("correlation_id", Int32),
        ("client_id", String("utf-8")),
        (TAGS, TaggedFields),
    )


class _ResponseHeader(Struct):
    SCHEMA = Schema(("correlation_id", Int32), (TAGS, TaggedFields))


class FlexibleHeaders:
    """A base class of requests in flexible versions, whose headers have tagged fields."""

    FLEXIBLE_VERSION: ClassVar = True
    API_KEY: ClassVar[int]
    API_VERSION: ClassVar[int]

    def build_request_header(self, correlation_id: int, client_id: str) -> Struct:
        """Return the header of the request."""
        return _RequestHeader(self.API_KEY, self.API_VERSION, correlation_id, client_id, {})

    def parse_response_header(self, read_buffer: BytesIO | bytes) -> Struct:
        """Read the header of the response."""
        return _ResponseHeader.decode(read_buffer)


def is_flexible(request: RequestStruct) -> bool:
    """Return whether a request is of a flexible version.

    The headers of such a request and of its response have tagged fields.
    """
    declared = getattr(request, "FLEXIBLE_VERSION", None)
    # From 0.15 on, aiokafka's requests declare it by their schema.
    return bool(request.SCHEMA.has_tagged_fields if declared is None else declared)
