"""Values that are written with schemas of a registry. Confluent's deserializers read them."""

import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONDeserializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from asyncconsumer import ConsumerApp, Key, Outgoing, Producer, Publish
from asyncconsumer.errors import ConfigError, SerializationFailed
from asyncconsumer.serdes import RecordContext, SchemaRegistry, make_serializer
from asyncconsumer.testing import FakeKafka
from asyncconsumer.testing.registry import FakeRegistry
from tests.support.orders import PLAIN, DataclassOrder, MsgspecOrder, PydanticOrder
from tests.support.registry_serializers import AVRO_NEWER_ORDER, AVRO_ORDER, JSON_ORDER, messages

pytestmark = pytest.mark.fast

FIELDS: dict[str, Any] = PLAIN


@pytest.fixture
async def server() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry() as fake:
        yield fake


@pytest.fixture
async def registry(server: FakeRegistry) -> AsyncIterator[SchemaRegistry]:
    async with SchemaRegistry(server.url) as registry:
        yield registry


class Topic:
    """A topic of one test, whose values Confluent's deserializers read."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.name = uuid.uuid4().hex
        self.place = RecordContext(self.name, "value", ())
        self.context = SerializationContext(self.name, MessageField.VALUE)

    async def written(self, form: Any, value: Any) -> bytes:
        """Return the bytes of a value after a request, and of another one without a wait."""
        serialize = make_serializer(form)
        first = serialize(value, self.place)
        assert first is not None
        assert not isinstance(first, bytes)
        data = await first
        assert serialize(value, self.place) == data
        assert data is not None
        return data


@pytest.fixture
async def topic(server: FakeRegistry) -> AsyncIterator[Topic]:
    async with AsyncSchemaRegistryClient({"url": server.url}) as client:
        yield Topic(client)


@pytest.mark.parametrize("kind", [dict, PydanticOrder, MsgspecOrder, DataclassOrder])
async def test_avro_with_a_schema_is_written(
    topic: Topic, registry: SchemaRegistry, kind: type
) -> None:
    model = None if kind is dict else kind
    data = await topic.written(registry.avro(model, schema=AVRO_ORDER), kind(**FIELDS))
    read = await AsyncAvroDeserializer(topic.client)
    assert await read(data, topic.context) == PLAIN


@pytest.mark.parametrize("kind", [PydanticOrder, MsgspecOrder, DataclassOrder])
async def test_json_is_written_with_the_schema_of_a_model(
    topic: Topic, registry: SchemaRegistry, server: FakeRegistry, kind: type
) -> None:
    data = await topic.written(registry.json_schema(kind), kind(**FIELDS))
    latest = await topic.client.get_latest_version(f"{topic.name}-value")
    assert '"item"' in latest.schema.schema_str
    read = await AsyncJSONDeserializer(None, schema_registry_client=topic.client)
    assert await read(data, topic.context) == PLAIN


async def test_json_is_validated_without_a_model(topic: Topic, registry: SchemaRegistry) -> None:
    form = registry.json_schema(schema=JSON_ORDER)
    read = await AsyncJSONDeserializer(JSON_ORDER, schema_registry_client=topic.client)
    assert await read(await topic.written(form, PLAIN), topic.context) == PLAIN
    with pytest.raises(SerializationFailed, match="ValidationError"):
        make_serializer(form)({"item": "no id"}, topic.place)


@pytest.mark.parametrize("name", ["Order", "Other.Second"])
async def test_protobuf_messages_are_written(
    topic: Topic, registry: SchemaRegistry, name: str
) -> None:
    kind = messages()[name]
    form = registry.protobuf(kind)
    data = await topic.written(form, kind(id=7, item="tea"))
    read = AsyncProtobufDeserializer(kind, {"use.deprecated.format": False}, topic.client)
    made = await (await read)(data, topic.context)
    assert (made.id, made.item) == (7, "tea")
    with pytest.raises(SerializationFailed, match="TypeError"):
        make_serializer(form)(messages()["Other"](), topic.place)


async def test_protobuf_files_are_registered_with_their_imports(
    topic: Topic, registry: SchemaRegistry
) -> None:
    field = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", syntax="proto3")
    money.message_type.add(name="Money").field.add(
        name="cents", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL
    )
    bill = descriptor_pb2.FileDescriptorProto(
        name="bill.proto", syntax="proto3", dependency=["money.proto"]
    )
    bill.message_type.add(name="Bill").field.add(
        name="total", number=1, type=field.TYPE_MESSAGE, type_name=".Money",
        label=field.LABEL_OPTIONAL,
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(money)
    pool.Add(bill)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("Bill"))
    value = kind()
    value.total.cents = 5
    await topic.written(registry.protobuf(kind), value)
    latest = await topic.client.get_latest_version(f"{topic.name}-value")
    [reference] = latest.schema.references
    assert (reference.name, reference.subject, reference.version) == (
        "money.proto", "money.proto", 1,
    )  # fmt: skip


async def test_the_latest_version_of_the_subject_is_used_without_a_schema(
    topic: Topic, registry: SchemaRegistry, server: FakeRegistry
) -> None:
    server.register(f"{topic.name}-value", AVRO_ORDER)
    latest = server.register(f"{topic.name}-value", AVRO_NEWER_ORDER)
    data = await topic.written(registry.avro(), PLAIN)
    assert data[:5] == b"\0" + latest.to_bytes(4, "big")
    assert not any("versions" in path and "latest" not in path for path in server.asked)


async def test_a_schema_need_not_be_registered_by_the_writer(
    topic: Topic, registry: SchemaRegistry, server: FakeRegistry
) -> None:
    form = registry.avro(schema=AVRO_ORDER, register=False)
    unknown = make_serializer(form)(PLAIN, topic.place)
    assert unknown is not None
    assert not isinstance(unknown, bytes)
    with pytest.raises(SerializationFailed, match="Schema not found"):
        await unknown
    schema_id = server.register(f"{topic.name}-value", AVRO_ORDER)
    assert (await topic.written(form, PLAIN))[:5] == b"\0" + schema_id.to_bytes(4, "big")
    with pytest.raises(ConfigError, match="nothing is registered"):
        registry.avro(register=False)


async def test_the_subject_can_be_chosen(topic: Topic, registry: SchemaRegistry) -> None:
    await topic.written(registry.avro(schema=AVRO_ORDER, subject="shop.Order"), PLAIN)
    form = registry.avro(schema=AVRO_ORDER, subject=lambda place: f"{place.part}/{place.topic}")
    await topic.written(form, PLAIN)
    subjects = {"shop.Order", f"value/{topic.name}"}
    for subject in subjects:
        assert (await topic.client.get_latest_version(subject)).version == 1


async def test_an_unavailable_registry_is_retried(
    topic: Topic, registry: SchemaRegistry, server: FakeRegistry
) -> None:
    server.fail((503, {"error_code": 503, "message": "later"}))
    await topic.written(registry.avro(schema=AVRO_ORDER), PLAIN)
    assert len([path for path in server.asked if "/versions" in path]) == 2


async def test_a_format_reads_values_of_producers_and_handlers(
    registry: SchemaRegistry,
) -> None:
    orders = registry.avro(PydanticOrder, schema=AVRO_ORDER)
    bills = registry.json_schema(MsgspecOrder)
    app = ConsumerApp(bootstrap_servers="k:1", group_id="billing")
    read: list[MsgspecOrder] = []

    @app.handler("orders", publish="bills")
    async def bill(order: Annotated[PydanticOrder, orders]) -> Annotated[MsgspecOrder, bills]:
        return MsgspecOrder(order.id, order.item)

    @app.handler("bills", publish=Publish("copies", serializer=bills))
    async def copy(value: Annotated[MsgspecOrder, bills]) -> Any:
        read.append(value)
        return value

    async with FakeKafka() as kafka, app.testing(kafka):
        async with Producer(value_serializer=orders, **kafka.options) as producer:
            await producer.send_and_wait("orders", PydanticOrder(**FIELDS))
        await kafka.settled()
        assert read == [MsgspecOrder(**FIELDS)]
        assert kafka.published("copies")[0].value == kafka.published("bills")[0].value


async def test_each_type_of_a_union_has_its_own_format(registry: SchemaRegistry) -> None:
    orders = registry.avro(PydanticOrder, schema=AVRO_ORDER)
    bills = registry.json_schema(MsgspecOrder)
    app = ConsumerApp(bootstrap_servers="k:1", group_id="billing")
    order, bill = PydanticOrder(**FIELDS), MsgspecOrder(**FIELDS)

    @app.handler("first", publish="results")
    async def both(
        value: str,
    ) -> list[Annotated[PydanticOrder, orders] | Annotated[MsgspecOrder, bills] | str | Outgoing]:
        return [order, bill, "text", Outgoing("others", value=bill)]

    @app.handler("second", publish="bills")
    async def optional(value: str) -> Annotated[MsgspecOrder, bills] | Outgoing | None:
        return bill if value == "bill" else Outgoing("plain", value=order)

    async with app.testing() as kafka:
        await kafka.send("first", "x")
        await kafka.send("second", "bill")
        await kafka.send("second", "order")
        await kafka.settled()
        results = {
            topic: kafka.published(topic) for topic in ("results", "others", "bills", "plain")
        }

    async def read(form: Any, topic: str, number: int) -> Any:
        made = form.reader("value")(results[topic][number])
        return made if isinstance(made, PydanticOrder | MsgspecOrder) else await made

    assert await read(orders, "results", 0) == order
    assert await read(bills, "results", 1) == bill
    assert results["results"][2].value == b"text"
    assert await read(bills, "others", 0) == bill
    assert results["plain"][0].json() == FIELDS  # the annotation has no format for this type
    assert await read(bills, "bills", 0) == bill


async def test_keys_are_written_with_formats(registry: SchemaRegistry) -> None:
    keys = registry.json_schema(MsgspecOrder)
    app = ConsumerApp(bootstrap_servers="k:1", group_id="billing")
    seen: list[MsgspecOrder] = []

    @app.handler("orders", publish=Publish("copies", key=lambda value: value, key_serializer=keys))
    async def copy(value: Annotated[MsgspecOrder, keys]) -> MsgspecOrder:
        return value

    @app.handler("copies")
    async def read(value: MsgspecOrder, key: Annotated[MsgspecOrder, Key, keys]) -> None:
        seen.append(key)

    async with FakeKafka() as kafka, app.testing(kafka):
        async with Producer(value_serializer=keys, **kafka.options) as producer:
            await producer.send_and_wait("orders", MsgspecOrder(**FIELDS))
        await kafka.settled()
    assert seen == [MsgspecOrder(**FIELDS)]
