"""Deserializers and serializers of keys and values."""

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
from asyncconsumer.serdes.deserializer import Deserializable, make_deserializer
from asyncconsumer.serdes.registry import SchemaRegistry
from asyncconsumer.serdes.registry_format import RegistryFormat
from asyncconsumer.serdes.serializer import Serializable, Serializer, Serializes, make_serializer
from asyncconsumer.serdes.types import Deserializer, Deserializes, RecordContext

__all__ = [
    "Deserializable",
    "Deserializer",
    "Deserializes",
    "RecordContext",
    "RegistryFormat",
    "SchemaRegistry",
    "Serializable",
    "Serializer",
    "Serializes",
    "boolean",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "make_deserializer",
    "make_serializer",
    "msgpack",
    "uuid",
]
