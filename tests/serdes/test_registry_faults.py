"""A registry that is down, slow or strict, and concurrent lookups."""

import asyncio
import logging
from collections.abc import AsyncIterator
from types import CoroutineType
from typing import Any

import pytest

from asyncconsumer.errors import (
    ConsumerError,
    DeserializationFailed,
    RegistryRefused,
    RegistryUnavailable,
    WrongSchema,
)
from asyncconsumer.serdes import Deserializer, SchemaRegistry
from asyncconsumer.serdes.protobuf import message_names
from asyncconsumer.testing.registry import FakeRegistry
from tests.support.helpers import until
from tests.support.orders import record
from tests.support.registry_serializers import framed

pytestmark = pytest.mark.fast

TEXT = '"string"'
HELLO = b"\x0ahello"
BROKEN = 503, {"error_code": 50301, "message": "not now"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry() as registry:
        yield registry


async def read(deserializer: Deserializer[Any], schema_id: int) -> Any:
    made = deserializer.reader("value")(record(framed(schema_id, HELLO)))
    return await made if isinstance(made, CoroutineType) else made


async def failure(registry: SchemaRegistry, schema_id: int = 1) -> ConsumerError:
    with pytest.raises(DeserializationFailed) as excinfo:
        await read(registry.avro(), schema_id)
    cause = excinfo.value.__cause__
    assert isinstance(cause, ConsumerError)
    assert excinfo.value.retriable == cause.retriable
    return cause


async def test_a_temporary_error_of_the_registry_is_retried(fake: FakeRegistry) -> None:
    schema_id = fake.register("s", TEXT)
    fake.fail(BROKEN, BROKEN)
    assert await read(SchemaRegistry(fake.url).avro(), schema_id) == "hello"
    assert len(fake.asked) == 3


async def test_a_persistent_registry_outage_is_a_retriable_error(fake: FakeRegistry) -> None:
    fake.fail(*[BROKEN] * 100)
    error = await failure(SchemaRegistry(fake.url, patience_ms=100))
    assert isinstance(error, RegistryUnavailable)
    assert error.retriable
    assert "not now" in str(error)
    assert 1 < len(fake.asked) < 100


async def test_a_refused_connection_to_the_registry_is_reported() -> None:
    error = await failure(SchemaRegistry("http://127.0.0.1:1", patience_ms=0))
    assert isinstance(error, RegistryUnavailable)
    assert "schema registry http://127.0.0.1:1: schema 1: ConnectError" in str(error)


async def test_a_silent_registry_is_given_up_after_the_timeout(fake: FakeRegistry) -> None:
    schema_id = fake.register("s", TEXT)
    fake.stall()
    registry = SchemaRegistry(fake.url, request_timeout_ms=50, patience_ms=0)
    assert isinstance(await failure(registry), RegistryUnavailable)
    fake.heal()
    assert await read(registry.avro(), schema_id) == "hello"


@pytest.mark.parametrize(
    "answer", [(403, {"error_code": 403, "message": "no"}), (200, b"<html>"), (200, {}), (200, [])]
)
async def test_a_final_error_of_the_registry_is_not_retried(
    fake: FakeRegistry, answer: Any
) -> None:
    fake.fail(*[answer] * 2)
    error = await failure(SchemaRegistry(fake.url))
    assert isinstance(error, RegistryRefused)
    assert not error.retriable
    assert len(fake.asked) == 1


async def test_an_invalid_schema_is_reported(fake: FakeRegistry) -> None:
    error = await failure(SchemaRegistry(fake.url), fake.register("s", '{"type": "recrod"}'))
    assert isinstance(error, WrongSchema)
    assert "the schema is invalid" in str(error)


async def test_rules_for_reading_are_refused(fake: FakeRegistry) -> None:
    def rule(mode: str, **more: Any) -> dict[str, Any]:
        return {"name": "pii", "kind": "TRANSFORM", "mode": mode, "type": "ENCRYPT", **more}

    for harmless in (rule("WRITE"), rule("WRITEREAD", disabled=True)):
        name = f"{harmless['mode']}"
        schema_id = fake.register(name, TEXT, ruleSet={"domainRules": [harmless]})
        assert await read(SchemaRegistry(fake.url).avro(), schema_id) == "hello"
    encrypted = fake.register("e", TEXT, ruleSet={"domainRules": [rule("WRITEREAD")]})
    error = await failure(SchemaRegistry(fake.url), encrypted)
    assert isinstance(error, WrongSchema)
    assert "its rule 'pii' (ENCRYPT) must run on read" in str(error)


# --- concurrent lookups and connections ----------------------------------------------------------


async def test_concurrent_lookups_of_a_schema_are_one_request(fake: FakeRegistry) -> None:
    schema_id = fake.register("s", TEXT)
    registry = SchemaRegistry(fake.url)
    deserializers = registry.avro(), registry.avro()  # both share the known schemas
    async with asyncio.TaskGroup() as group:
        for deserializer in deserializers * 20:
            group.create_task(read(deserializer, schema_id))
    assert len(fake.asked) == 1


async def test_a_cancelled_lookup_is_repeated_for_the_others(fake: FakeRegistry) -> None:
    schema_id = fake.register("s", TEXT)
    avro = SchemaRegistry(fake.url).avro()
    fake.stall()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(read(avro, schema_id))
        others = [group.create_task(read(avro, schema_id)) for _ in range(5)]
        await until(lambda: len(fake.asked) == 1)
        first.cancel()
        await until(lambda: len(fake.asked) == 2)
        fake.heal()
    assert [each.result() for each in others] == ["hello"] * 5
    assert len(fake.asked) == 2


async def test_registry_connections_are_closed(fake: FakeRegistry) -> None:
    ids = [fake.register("s", text) for text in (TEXT, '{"type": "string"}')]
    alone = SchemaRegistry(fake.url)
    assert await read(alone.avro(), ids[0]) == "hello"
    await until(lambda: fake.connected == 0)
    async with SchemaRegistry(fake.url) as registry:
        for each in ids:
            assert await read(registry.avro(), each) == "hello"
        assert (fake.accepted, fake.connected) == (2, 1)
    await until(lambda: fake.connected == 0)
    assert await read(registry.avro(), ids[0]) == "hello"  # a known schema


# --- secrets -------------------------------------------------------------------------------------


async def test_secrets_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    user = "billing", "s3cr:t/ä"
    quoted = "s3cr%3At%2F%C3%A4"
    async with FakeRegistry(basic_auth=user) as fake:
        schema_id = fake.register("s", TEXT)
        with_user = fake.url.replace("http://", f"http://billing:{quoted}@")
        message = ""
        for registry in (SchemaRegistry(fake.url, basic_auth=user), SchemaRegistry(with_user)):
            assert await read(registry.avro(), schema_id) == "hello"
            message += f"{registry!r} {registry.url} {await failure(registry, 55)!r} {caplog.text}"
        wrong = SchemaRegistry(fake.url, basic_auth=("billing", "wr0ng"))
        error = await failure(wrong)
        assert isinstance(error, RegistryRefused)
        assert "Unauthorized" in str(error)
        message += f"{error} {error!r} {caplog.text}"
    for secret in ("s3cr", quoted, "wr0ng"):
        assert secret not in message


# --- the names of messages -----------------------------------------------------------------------


def test_messages_are_found_in_any_style_of_proto_files() -> None:
    names = message_names(
        """
        // message NotThis { }
        syntax = "proto2"; /* message { */ package shop.v1;
        option java_package = "message { }";
        enum Kind { A = 0; }
        message Order { optional string message = 1; oneof x { group Both = 2 { } string b = 3; }
          enum Kind { B = 0; } message Line { message Part {} } optional group More = 4 { } }
        service S { rpc Get(Order) returns (Order) { option (a) = { message: 'x' }; } }
        message Last {}
        """
    )
    assert names == {
        (0,): "shop.v1.Order",
        (0, 0): "shop.v1.Order.Both",
        (0, 1): "shop.v1.Order.Line",
        (0, 1, 0): "shop.v1.Order.Line.Part",
        (0, 2): "shop.v1.Order.More",
        (1,): "shop.v1.Last",
    }
