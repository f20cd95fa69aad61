"""Deserializers for the formats of Kafka's own serializers: big-endian numbers of a fixed size."""

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import UUID

from asyncconsumer.errors import WrongBytes
from asyncconsumer.serdes.models import named, package
from asyncconsumer.serdes.types import Deserializer

T = TypeVar("T")


def _number(name: str, form: str) -> Callable[[bytes], Any]:
    layout = struct.Struct(form)

    def read(data: bytes) -> Any:  # noqa: ANN401 - the type depends on the form
        if len(data) != layout.size:
            raise WrongBytes(f"{name} has {layout.size} bytes, got {len(data)}")
        return layout.unpack(data)[0]

    return read


def _uuid(data: bytes) -> UUID:
    return UUID(data.decode("ascii"))


int16: Final[Deserializer[int]] = Deserializer(_number("int16", ">h"), "int16")
"""The format of ShortSerializer."""
int32: Final[Deserializer[int]] = Deserializer(_number("int32", ">i"), "int32")
"""The format of IntegerSerializer."""
int64: Final[Deserializer[int]] = Deserializer(_number("int64", ">q"), "int64")
"""The format of LongSerializer."""
float32: Final[Deserializer[float]] = Deserializer(_number("float32", ">f"), "float32")
"""The format of FloatSerializer."""
float64: Final[Deserializer[float]] = Deserializer(_number("float64", ">d"), "float64")
"""The format of DoubleSerializer."""
boolean: Final[Deserializer[bool]] = Deserializer(_number("boolean", ">?"), "boolean")
"""The format of BooleanSerializer."""
uuid: Final[Deserializer[UUID]] = Deserializer(_uuid, "uuid")
"""The text format of UUIDSerializer."""


def msgpack(kind: type[T]) -> Deserializer[T]:
    """Return a deserializer of MessagePack to the type `kind`. It uses msgspec."""
    msgspec = package("msgspec", f"msgpack({named(kind)})")
    return Deserializer(msgspec.msgpack.Decoder(kind).decode, f"{named(kind)} by msgpack")
