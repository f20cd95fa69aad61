"""Schemas of a registry. The serializers of Confluent write the values.

The registry is a fake. With `$ASYNCCONSUMER_REGISTRY`, it is the real one at that address, as
``http://127.0.0.1:8080/apis/ccompat/v7`` is for Apicurio's.
"""

import os
import uuid
from collections.abc import AsyncIterator
from types import CoroutineType
from typing import Any

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer

from asyncconsumer.errors import ConfigError, NotFramed, UnknownSchema, WrongSchema
from asyncconsumer.serdes import Deserializer, SchemaRegistry, make_deserializer
from asyncconsumer.testing.registry import FakeRegistry
from tests.support.orders import PLAIN, MsgspecOrder, PydanticOrder, record
from tests.support.registry_serializers import (
    AVRO_NEWER_ORDER,
    AVRO_ORDER,
    JSON_ORDER,
    Writer,
    bill_files,
    encoded,
    framed,
    messages,
    writing,
)

pytestmark = pytest.mark.fast


@pytest.fixture
async def url() -> AsyncIterator[str]:
    if real := os.environ.get("ASYNCCONSUMER_REGISTRY"):
        yield real
        return
    async with FakeRegistry() as fake:
        yield fake.url


@pytest.fixture
async def writer(url: str) -> AsyncIterator[Writer]:
    async with writing(url, uuid.uuid4().hex) as writer:
        yield writer


@pytest.fixture
async def registry(url: str) -> AsyncIterator[SchemaRegistry]:
    async with SchemaRegistry(url) as registry:
        yield registry


async def made(deserializer: Deserializer[Any], data: bytes) -> Any:
    """Return the value of a record after a lookup, and of another one without a wait."""
    read = deserializer.reader("value")
    first = read(record(data))
    assert isinstance(first, CoroutineType)
    result = await first
    again = read(record(data))
    assert not isinstance(again, CoroutineType)
    assert again == result
    return result


async def cause(deserializer: Deserializer[Any], data: bytes) -> BaseException | None:
    waiting = deserializer.reader("value")(record(data))
    assert isinstance(waiting, CoroutineType)
    with pytest.raises(Exception, match=r"orders\[3\]@14") as excinfo:
        await waiting
    return excinfo.value.__cause__


# --- Avro ----------------------------------------------------------------------------------------


async def test_avro_is_read_as_plain_objects_and_as_models(
    writer: Writer, registry: SchemaRegistry
) -> None:
    data = await writer.avro(PLAIN, AVRO_ORDER)
    assert await made(registry.avro(), data) == PLAIN
    assert await made(registry.avro(PydanticOrder), data) == PydanticOrder(id=7, item="tea")
    assert await made(registry.avro(MsgspecOrder), data) == MsgspecOrder(7, "tea")
    assert registry.avro(PydanticOrder).reader("key")(record(key=None)) is None


async def test_each_record_is_read_with_its_writer_schema(
    writer: Writer, registry: SchemaRegistry
) -> None:
    older = await writer.avro(PLAIN, AVRO_ORDER)
    newer = await writer.avro({**PLAIN, "count": 3}, AVRO_NEWER_ORDER)
    avro, as_newer = registry.avro(), registry.avro(reader_schema=AVRO_NEWER_ORDER)
    assert await made(avro, older) == PLAIN
    assert await made(avro, newer) == {**PLAIN, "count": 3}
    assert await made(as_newer, older) == {**PLAIN, "count": 1}
    assert await made(as_newer, newer) == {**PLAIN, "count": 3}


async def test_avro_schemas_refer_to_others(writer: Writer, registry: SchemaRegistry) -> None:
    colour = '{"type": "enum", "name": "Colour", "namespace": "shop", "symbols": ["RED"]}'
    item = """{"type": "record", "name": "Item", "namespace": "shop",
        "fields": [{"name": "colour", "type": "shop.Colour"}]}"""
    order = """{"type": "record", "name": "Full", "namespace": "shop", "fields": [
        {"name": "item", "type": "shop.Item"},
        {"name": "second", "type": ["null", "shop.Item"]}]}"""
    of_colour, _ = await writer.register("colour", colour, "AVRO")
    of_item, _ = await writer.register("item", item, "AVRO", ("shop.Colour", of_colour))
    _, whole = await writer.register("order", order, "AVRO", ("shop.Item", of_item))
    _, either = await writer.register(
        "either", '["shop.Item", "shop.Colour"]', "AVRO",
        ("shop.Item", of_item), ("shop.Colour", of_colour),
    )  # fmt: skip
    avro = registry.avro()
    red = {"colour": "RED"}
    assert await made(avro, framed(whole, b"\0\2\0")) == {"item": red, "second": red}
    assert await made(avro, framed(either, b"\0\0")) == red
    assert avro.reader("value")(record(framed(either, b"\2\0"))) == "RED"


async def test_avro_bytes_are_read_unchanged(writer: Writer, registry: SchemaRegistry) -> None:
    data = await writer.avro(b"raw", '"bytes"')
    assert data.endswith(b"raw")
    assert await made(registry.avro(), data) == b"raw"


async def test_deserializers_of_confluent_are_accepted(url: str, writer: Writer) -> None:
    data = await writer.avro(PLAIN, AVRO_ORDER)
    async with AsyncSchemaRegistryClient({"url": url}) as client:
        theirs = make_deserializer(await AsyncAvroDeserializer(client))
        waiting = theirs.reader("value")(record(data))
        assert isinstance(waiting, CoroutineType)
        assert await waiting == PLAIN


# --- JSON ----------------------------------------------------------------------------------------


async def test_json_is_checked_by_its_schema(writer: Writer, registry: SchemaRegistry) -> None:
    data = await writer.json(PLAIN)
    checked, unchecked = registry.json_schema(), registry.json_schema(validate=False)
    assert await made(checked, data) == PLAIN
    assert await made(unchecked, data) == PLAIN
    bad = data[:5] + b'{"item": 5}'
    with pytest.raises(Exception, match="ValidationError"):
        checked.reader("value")(record(bad))
    assert unchecked.reader("value")(record(bad)) == {"item": 5}


async def test_json_is_read_as_models(writer: Writer, registry: SchemaRegistry) -> None:
    data = await writer.json(PLAIN)
    assert await made(registry.json_schema(MsgspecOrder), data) == MsgspecOrder(7, "tea")
    both = registry.json_schema(PydanticOrder, validate=True)
    assert await made(both, data) == PydanticOrder(id=7, item="tea")


async def test_json_schemas_refer_to_others(writer: Writer, registry: SchemaRegistry) -> None:
    of_order, _ = await writer.register("order", JSON_ORDER, "JSON")
    orders = """{"$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array", "items": {"$ref": "order.json"}}"""
    _, several = await writer.register("orders", orders, "JSON", ("order.json", of_order))
    checked = registry.json_schema()
    assert await made(checked, framed(several, b'[{"id": 1}]')) == [{"id": 1}]
    with pytest.raises(Exception, match="ValidationError"):
        checked.reader("value")(record(framed(several, b"[{}]")))


# --- Protobuf ------------------------------------------------------------------------------------


async def test_protobuf_reads_nested_and_later_messages(
    writer: Writer, registry: SchemaRegistry
) -> None:
    for name in ("Order", "Other.Inner", "Other.Second"):
        kind = messages()[name]
        written = kind(id=7, item="tea")
        assert await made(registry.protobuf(kind), await writer.protobuf(written)) == written


async def test_protobuf_of_another_message_is_refused(
    writer: Writer, registry: SchemaRegistry
) -> None:
    order, second = messages()["Order"], messages()["Other.Second"]
    data = await writer.protobuf(second(id=7, item="tea"))  # whose bytes are valid for an Order
    error = await cause(registry.protobuf(order), data)
    assert isinstance(error, WrongSchema)
    assert "expected a message shop.v1.Order, got shop.v1.Other.Second" in str(error)


async def test_protobuf_without_a_valid_message_index_is_refused(
    writer: Writer, registry: SchemaRegistry
) -> None:
    order = messages()["Order"]
    data = await writer.protobuf(order(id=7, item="tea"))
    for prefix in (b"", b"\x80", b"\x01", b"\x7f", b"\xff" * 9, b"\x08\0"):
        error = await cause(registry.protobuf(order), data[:5] + prefix)
        assert isinstance(error, NotFramed), prefix


async def test_protobuf_without_a_class_reads_all_messages_of_a_schema(
    writer: Writer, registry: SchemaRegistry
) -> None:
    for name in ("Order", "Other.Inner", "Other.Second"):
        data = await writer.protobuf(messages()[name](id=2**60, item="tea"))
        assert await made(registry.protobuf(), data) == {"id": str(2**60), "item": "tea"}


async def test_protobuf_without_a_class_reads_imported_messages(
    writer: Writer, registry: SchemaRegistry
) -> None:
    money, bill = bill_files()
    needed = await writer.register("money", encoded(money), "PROTOBUF")
    _, schema_id = await writer.register(
        "bill", encoded(bill), "PROTOBUF", ("money.proto", needed[0])
    )
    data = b"\x00" + b"\x0a\x02\x08\x05" + b"\x12\x02\x08\x3c"  # total.cents 5, at 60 s
    value = await made(registry.protobuf(), framed(schema_id, data))
    assert value == {"total": {"cents": "5"}, "at": "1970-01-01T00:01:00Z"}


async def test_protobuf_without_a_class_imports_no_module_that_a_schema_names(
    writer: Writer, registry: SchemaRegistry
) -> None:
    _, bill = bill_files()
    del bill.dependency[:]
    bill.dependency.append("tests/support/messages.proto")
    _, schema_id = await writer.register("bill", encoded(bill), "PROTOBUF")
    error = await cause(registry.protobuf(), framed(schema_id, b"\0"))
    assert isinstance(error, WrongSchema)
    assert "imports tests/support/messages.proto, which is not among its references" in str(error)


async def test_protobuf_without_a_class_needs_a_descriptor_and_a_known_message(
    writer: Writer, registry: SchemaRegistry
) -> None:
    text = 'syntax = "proto3"; message Order { int64 id = 1; }'
    _, schema_id = await writer.register("text", text, "PROTOBUF")
    error = await cause(registry.protobuf(), framed(schema_id, b"\0\x08\x07"))
    assert isinstance(error, WrongSchema)
    data = await writer.protobuf(messages()["Order"](id=7))
    error = await cause(registry.protobuf(), data[:5] + b"\x02\x12" + data[6:])
    assert isinstance(error, WrongSchema)
    assert "it has no message 9" in str(error)


async def test_descriptors_of_protobuf_are_requested() -> None:
    async with FakeRegistry() as fake, writing(fake.url, "t") as writer:
        data = await writer.protobuf(messages()["Order"](id=7))
        fake.asked.clear()
        await made(SchemaRegistry(fake.url).protobuf(messages()["Order"]), data)
        assert [target for target in fake.asked if "format=serialized" in target] == fake.asked
        fake.asked.clear()
        await made(SchemaRegistry(fake.url).avro(), await writer.avro(PLAIN, AVRO_ORDER))
        assert not [target for target in fake.asked if "format" in target]


# --- errors --------------------------------------------------------------------------------------


async def test_a_schema_of_another_kind_is_refused(
    writer: Writer, registry: SchemaRegistry
) -> None:
    data = await writer.json(PLAIN)
    error = await cause(registry.avro(), data)
    assert isinstance(error, WrongSchema)
    assert "expected a schema of type AVRO, got JSON" in str(error)


async def test_an_unknown_schema_is_reported(url: str, registry: SchemaRegistry) -> None:
    error = await cause(registry.avro(), framed(987654, b"x"))
    assert isinstance(error, UnknownSchema)
    assert not error.retriable
    assert f"schema registry {url}: schema 987654" in str(error)


async def test_unframed_data_is_reported() -> None:
    avro = SchemaRegistry("http://127.0.0.1:1").avro()  # which is not asked
    for data in (b"", b"\0\0\0", b'{"id": 7}', b"\1\0\0\0\1x"):
        error = await cause(avro, data)
        assert isinstance(error, NotFramed), data
        assert "Check that the producer uses a schema registry" in str(error)


def test_wrong_settings_are_reported_by_the_constructor() -> None:
    for wrong, reason in [
        ({"url": "registry:8081"}, "`url` must be the URL"),
        ({"url": "http://a:b@r:1", "basic_auth": ("c", "d")}, "in `url` and in `basic_auth`"),
        ({"url": "http://r:1", "ssl_key_location": "k"}, "ssl.certificate.location required"),
        ({"url": "http://r:1", "ssl_ca_location": "/no/such"}, "No such file"),
        ({"url": "http://r:1", "properties": {"tmeout": 1}}, "tmeout"),
        ({"url": "http://r:1", "patience_ms": -1}, "`patience_ms` must be"),
    ]:
        with pytest.raises(ConfigError, match=reason):
            SchemaRegistry(**wrong)  # type: ignore[arg-type]
    registry = SchemaRegistry("http://r:1")
    with pytest.raises(ConfigError, match="not a message class"):
        registry.protobuf(PydanticOrder)
    with pytest.raises(ConfigError, match="reader_schema is no Avro schema"):
        registry.avro(reader_schema="{}")
