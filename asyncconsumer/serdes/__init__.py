"""What makes keys and values of bytes."""

from asyncconsumer.serdes.binary import (
    boolean,
    float32,
    float64,
    int16,
    int32,
    int64,
    msgpack,
    uuid,
)
from asyncconsumer.serdes.deserializer import Deserializable, deserializer_of
from asyncconsumer.serdes.registry import SchemaRegistry
from asyncconsumer.serdes.types import Deserializer, Deserializes, Place

__all__ = [
    "Deserializable",
    "Deserializer",
    "Deserializes",
    "Place",
    "SchemaRegistry",
    "boolean",
    "deserializer_of",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "msgpack",
    "uuid",
]
