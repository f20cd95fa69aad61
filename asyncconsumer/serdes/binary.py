"""Numbers and ids as Kafka's own serializers write them: big-endian, of a fixed size."""

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

    def read(data: bytes) -> Any:  # noqa: ANN401 - what the form says
        if len(data) != layout.size:
            raise WrongBytes(f"{len(data)} bytes are no {name}, which has {layout.size}")
        return layout.unpack(data)[0]

    return read


def _uuid(data: bytes) -> UUID:
    return UUID(data.decode("ascii"))


int16: Final[Deserializer[int]] = Deserializer(_number("int16", ">h"), "int16")
"""What ShortSerializer writes."""
int32: Final[Deserializer[int]] = Deserializer(_number("int32", ">i"), "int32")
"""What IntegerSerializer writes."""
int64: Final[Deserializer[int]] = Deserializer(_number("int64", ">q"), "int64")
"""What LongSerializer writes."""
float32: Final[Deserializer[float]] = Deserializer(_number("float32", ">f"), "float32")
"""What FloatSerializer writes."""
float64: Final[Deserializer[float]] = Deserializer(_number("float64", ">d"), "float64")
"""What DoubleSerializer writes."""
boolean: Final[Deserializer[bool]] = Deserializer(_number("boolean", ">?"), "boolean")
"""What BooleanSerializer writes."""
uuid: Final[Deserializer[UUID]] = Deserializer(_uuid, "uuid")
"""What UUIDSerializer writes: text."""


def msgpack(kind: type[T]) -> Deserializer[T]:
    """MessagePack, made into this type by msgspec."""
    msgspec = package("msgspec", f"msgpack({named(kind)})")
    return Deserializer(msgspec.msgpack.Decoder(kind).decode, f"{named(kind)} by msgpack")
