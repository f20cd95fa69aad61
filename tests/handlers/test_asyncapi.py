"""The AsyncAPI document of an app."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from pydantic import BaseModel, Field

from asyncconsumer import (
    Batch,
    ConsumerApp,
    Depends,
    Header,
    Key,
    Outgoing,
    Publish,
    Record,
    Retry,
    Router,
)
from asyncconsumer.serdes import SchemaRegistry, int64
from tests.support.asyncapi_schema import schema

pytestmark = pytest.mark.fast

SECRET = "hunter2"
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "id", "type": "long"}],
}


class Card(BaseModel):
    kind: Literal["card"]
    number: str


class Cash(BaseModel):
    kind: Literal["cash"]


class Order(BaseModel):
    """An order of a customer."""

    id: int = Field(gt=0)
    payment: Annotated[Card | Cash, Field(discriminator="kind")]


class Bill(msgspec.Struct):
    order: int
    total: float


@dataclass
class Refund:
    order: int
    when: datetime


def make_app(**options: Any) -> ConsumerApp:
    return ConsumerApp(bootstrap_servers="kafka:9092", group_id="billing", **options)


def document_of(app: ConsumerApp) -> Any:
    """Return the document of an app, after it was validated and its references were resolved."""
    document = app.asyncapi()
    assert json.loads(json.dumps(document)) == document
    check_references(document, document)
    jsonschema.Draft7Validator(schema()).validate(document)
    return document


def check_references(part: Any, document: Any) -> None:
    if isinstance(part, list):
        for each in part:
            check_references(each, document)
    elif isinstance(part, dict):
        for name, each in part.items():
            if name == "$ref":
                target = document
                for step in each.removeprefix("#/").split("/"):
                    target = target[step]
            else:
                check_references(each, document)


def test_a_document_has_topics_types_keys_and_headers() -> None:
    app = make_app()

    def tenant(name: Annotated[str, Header("tenant")]) -> str:
        return name

    @app.handler("orders", publish="billed")
    async def bill(
        order: Order,
        customer: Annotated[str, Key],
        of: Annotated[str, Depends(tenant)],
        version: Annotated[int, Header("version")] = 1,
    ) -> list[Bill | Refund | Outgoing] | None:
        """Bill an order.

        A refund has no total.
        """

    document = document_of(app)
    assert document["info"] == {"title": "billing", "version": "1.0.0"}
    assert document["servers"] == {"bootstrap-1": {"host": "kafka:9092", "protocol": "kafka"}}
    [message] = document["channels"]["orders"]["messages"].values()
    assert message == {
        "contentType": "application/json",
        "payload": {"$ref": "#/components/schemas/Order"},
        "headers": {
            "type": "object",
            "properties": {"tenant": {"type": "string"}, "version": {"type": "integer"}},
            "required": ["tenant"],
        },
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"}},
    }
    operations = document["operations"]
    assert operations["bill"] == {
        "action": "receive",
        "channel": {"$ref": "#/channels/orders"},
        "title": bill.__qualname__,
        "summary": "Bill an order.",
        "description": "Bill an order.\n\nA refund has no total.",
        "messages": [{"$ref": "#/channels/orders/messages/Order"}],
        "bindings": {
            "kafka": {
                "groupId": {"type": "string", "enum": ["billing"]},
                "bindingVersion": "0.5.0",
            }
        },
    }
    assert operations["bill.publish"]["action"] == "send"
    assert operations["bill.publish"]["messages"] == [
        {"$ref": "#/channels/billed/messages/Bill"},
        {"$ref": "#/channels/billed/messages/Refund"},
    ]
    schemas = document["components"]["schemas"]
    assert schemas.keys() == {"Order", "Card", "Cash", "Bill", "Refund"}
    assert schemas["Order"]["properties"]["payment"]["discriminator"] == "kind"
    assert schemas["Order"]["properties"]["id"]["exclusiveMinimum"] == 0
    assert schemas["Bill"]["properties"]["total"] == {"type": "number"}


def test_values_without_a_model_have_simple_schemas() -> None:
    app = make_app()

    @app.handler("texts", publish=Publish("copies", serializer="json", key=str))
    async def text(value: str) -> object:
        return value

    @app.handler("bytes", "blobs")
    async def binary(value: bytes | None) -> None: ...

    @app.handler("objects", batch=Batch(10), publish=Publish("counts", key_serializer=str))
    async def objects(values: list[dict[str, int]]) -> list[str]:
        return [str(values)]

    @app.handler("numbers")
    async def number(value: Annotated[int, int64]) -> None: ...

    @app.handler("records")
    async def record(record: Record) -> None: ...

    document = document_of(app)
    messages = {
        name: (message.get("contentType"), message.get("payload"))
        for name, channel in document["channels"].items()
        for message in channel["messages"].values()
    }
    assert messages == {
        "texts": ("text/plain", {"type": "string"}),
        "copies": ("application/json", {}),
        "bytes": ("application/octet-stream", {"type": "string", "format": "binary"}),
        "blobs": ("application/octet-stream", {"type": "string", "format": "binary"}),
        "objects": (
            "application/json",
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        "counts": ("text/plain", {"type": "string"}),
        "numbers": ("application/octet-stream", {"type": "integer"}),
        "records": (None, None),
    }
    assert {"binary.bytes", "binary.blobs"} < document["operations"].keys()


def test_retry_and_dead_letter_topics_are_described() -> None:
    app = make_app()
    router = Router(prefix="shop.")

    @router.handler("orders", retry=Retry(3, topic="again"), dead_letter_topic="dead")
    async def bill(order: Order, version: Annotated[int, Header("version")]) -> None: ...

    app.include(router, prefix="eu.")
    document = document_of(app)
    assert document["channels"].keys() == {"eu.shop.orders", "eu.shop.again", "eu.shop.dead"}
    assert {name: each["action"] for name, each in document["operations"].items()} == {
        "bill": "receive",
        "bill.retry": "receive",
        "bill.park": "send",
        "bill.dead_letter": "send",
    }
    [dead] = document["channels"]["eu.shop.dead"]["messages"].values()
    assert dead["payload"] == {"$ref": "#/components/schemas/Order"}
    assert dead["headers"]["properties"] == {"version": {"type": "integer"}}
    assert "^dlt\\." in dead["headers"]["patternProperties"]


def test_a_pattern_is_a_parameter_of_the_address() -> None:
    app = make_app()

    @app.handler(pattern=r"logs\..*")
    async def log(line: str) -> None: ...

    [channel] = document_of(app)["channels"].values()
    assert channel["address"] == "{topic}"
    assert r"`logs\..*`" in channel["parameters"]["topic"]["description"]


def test_schemas_of_a_registry_are_included() -> None:
    app, registry = make_app(), SchemaRegistry(f"http://alice:{SECRET}@registry:8081")

    @app.handler("sales", publish=Publish("sums", serializer=registry.avro(schema=AVRO)))
    async def sale(value: Annotated[dict[str, int], registry.avro(schema=AVRO)]) -> None: ...

    @app.handler("orders")
    async def order(
        value: Annotated[Order, registry.json_schema(Order)],
    ) -> None: ...

    @app.handler("any")
    async def anything(value: Annotated[dict[str, Any], registry.avro()]) -> None: ...

    document = document_of(app)
    for topic in ("sales", "sums"):
        [message] = document["channels"][topic]["messages"].values()
        assert message["contentType"] == "application/vnd.apache.avro"
        assert message["payload"]["schema"] == AVRO
        assert message["bindings"]["kafka"]["schemaIdLocation"] == "payload"
    [message] = document["channels"]["orders"]["messages"].values()
    assert message["contentType"] == "application/json"
    assert message["payload"] == {"$ref": "#/components/schemas/Order"}
    assert SECRET not in json.dumps(document)


def test_models_of_two_packages_may_have_the_same_name() -> None:
    app = make_app()

    def other() -> type[msgspec.Struct]:
        class Order(msgspec.Struct):
            number: int

        return Order

    async def mine(order: Order) -> None: ...
    async def theirs(order: other()) -> None: ...  # type: ignore[valid-type]

    app.handler("orders")(mine)
    app.handler("others")(theirs)
    document = document_of(app)
    assert {"Order", "msgspec.Order"} < document["components"]["schemas"].keys()


def test_two_functions_and_two_messages_may_have_the_same_name() -> None:
    app = make_app()

    def declare(topic: str, kind: Any, **options: Any) -> None:
        @app.handler(topic, **options)
        async def handle(value: kind) -> bytes:
            return b""

    declare("first", str, publish="second")
    declare("second", str)
    document = document_of(app)
    assert document["operations"].keys() == {"handle", "handle.publish", "handle-2"}
    assert document["channels"]["second"]["messages"].keys() == {"second", "second-2"}


@pytest.mark.parametrize(
    ("options", "schemes"),
    [
        ({"security_protocol": "SSL"}, None),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "alice",
                "sasl_plain_password": SECRET,
            },
            {"sasl": {"type": "scramSha512", "description": "SASL SCRAM-SHA-512"}},
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": lambda: SECRET,
            },
            {"sasl": {"type": "oauth2", "flows": {}, "description": "SASL OAUTHBEARER"}},
        ),
    ],
)
def test_servers_have_no_secrets(options: dict[str, Any], schemes: dict[str, Any] | None) -> None:
    app = make_app(**options)

    @app.handler("orders")
    async def bill(order: dict[str, Any]) -> None: ...

    document = document_of(app)
    assert document["servers"]["bootstrap-1"]["protocol"] == "kafka-secure"
    assert document.get("components", {}).get("securitySchemes") == schemes
    written = json.dumps(document)
    assert SECRET not in written
    assert "alice" not in written
