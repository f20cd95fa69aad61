"""Records of Confluent's serializers, which register their schemas."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema, SchemaReference
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONSerializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO_ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}"""
AVRO_NEWER_ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "item", "type": "string"},
    {"name": "count", "type": "int", "default": 1}]}"""
JSON_ORDER = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order",
    "type": "object", "required": ["id"],
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}}"""


class Writer:
    """Serializers for the topic of one test, so that no two tests share a subject."""

    def __init__(self, client: Any, topic: str) -> None:
        self._client = client
        self.topic = topic
        self._context = SerializationContext(topic, MessageField.VALUE)

    async def avro(self, value: Any, schema: str) -> bytes:
        serializer = await AsyncAvroSerializer(self._client, schema)
        return bytes(await serializer(value, self._context))

    async def json(self, value: Any, schema: str = JSON_ORDER) -> bytes:
        serializer = await AsyncJSONSerializer(schema, self._client)
        return bytes(await serializer(value, self._context))

    async def protobuf(self, message: Any) -> bytes:
        serializer = await AsyncProtobufSerializer(type(message), self._client)
        return bytes(await serializer(message, self._context))

    async def register(
        self, name: str, text: str, kind: str, *needed: tuple[str, str]
    ) -> tuple[str, int]:
        """Register a schema that needs the first versions of others. Return its subject and id."""
        references = [SchemaReference(called, subject, 1) for called, subject in needed]
        subject = f"{self.topic}-{name}"
        schema = Schema(text, kind, references)
        return subject, await self._client.register_schema(subject, schema)


@asynccontextmanager
async def writing(url: str, topic: str) -> AsyncIterator[Writer]:
    async with AsyncSchemaRegistryClient({"url": url}) as client:
        yield Writer(client, topic)


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


def encoded(file: Any) -> str:
    """Return a Protobuf file as the text that Confluent's client registers."""
    return base64.b64encode(file.SerializeToString()).decode()


def bill_files() -> tuple[Any, Any]:
    """Return the descriptors of a file Money, and of a file Bill that imports it."""
    field = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", syntax="proto3")
    money.message_type.add(name="Money").field.add(
        name="cents", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL
    )
    bill = descriptor_pb2.FileDescriptorProto(
        name="bill.proto",
        syntax="proto3",
        dependency=["money.proto", "google/protobuf/timestamp.proto"],
    )
    fields = bill.message_type.add(name="Bill").field
    for number, (name, kind) in enumerate(
        (("total", ".Money"), ("at", ".google.protobuf.Timestamp")), 1
    ):
        fields.add(
            name=name,
            number=number,
            type=field.TYPE_MESSAGE,
            type_name=kind,
            label=field.LABEL_OPTIONAL,
        )
    return money, bill


@cache
def messages() -> dict[str, Any]:
    """Return the messages of a file: Order, and Other with Inner and Second within."""
    field = descriptor_pb2.FieldDescriptorProto
    order = descriptor_pb2.DescriptorProto(
        name="Order",
        field=[
            field(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL),
            field(name="item", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL),
        ],
    )
    inner, second = descriptor_pb2.DescriptorProto(), descriptor_pb2.DescriptorProto()
    inner.CopyFrom(order)
    inner.name = "Inner"
    second.CopyFrom(order)
    second.name = "Second"
    other = descriptor_pb2.DescriptorProto(name="Other", nested_type=[inner, second])
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop.v1", syntax="proto3", message_type=[order, other]
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Order", "Other", "Other.Inner", "Other.Second")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.v1.{name}"))
        for name in names
    }
