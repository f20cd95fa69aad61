"""Code that must type-check with the declared types. It never runs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic

from asyncconsumer import (
    EARLIEST,
    Consumer,
    ConsumerApp,
    ConsumerConnector,
    Offset,
    Record,
    SimpleConsumer,
    TopicPartition,
    Whitelist,
)
from asyncconsumer.consumer.stream import ConsumerStream
from asyncconsumer.serdes import (
    Deserializer,
    RecordContext,
    RegistryFormat,
    SchemaRegistry,
    int64,
    make_deserializer,
    msgpack,
)
from asyncconsumer.streams.messages import Message, MessageStream

HERE = TopicPartition("orders", 0)


class Order(pydantic.BaseModel):
    total: int


class Fast(msgspec.Struct):
    total: int


@dataclass
class Plain:
    total: int


class Typed(TypedDict):
    total: int


def parse(data: bytes) -> Order:
    return Order.model_validate_json(data)


async def look_up(data: bytes) -> Order:
    return parse(data)


class ByPlace:
    def deserialize(self, data: bytes, place: RecordContext) -> Order:
        return parse(data) if place.topic == "orders" else Order(total=len(place.headers))


async def simple() -> None:
    async with SimpleConsumer("k:9092") as consumer:
        async for record in consumer.read("orders", 0, EARLIEST):
            assert_type(record, Record)
            assert_type(record.value, bytes | None)
        assert_type(await consumer.partitions("orders"), list[int])
        assert_type(await consumer.fetch_offsets("g", [HERE]), dict[TopicPartition, int | None])
        await consumer.commit_offsets("g", {HERE: 5})


def configured_from_outside() -> None:
    assert_type(Consumer.from_env("orders"), Consumer[bytes, bytes])
    assert_type(Consumer.from_env("orders", value_deserializer=Order), Consumer[bytes, Order])
    assert_type(
        Consumer.from_config("a.toml", "orders", key_deserializer=str, group_id="g"),
        Consumer[str, bytes],
    )
    assert_type(ConsumerApp.from_env(group_id="g"), ConsumerApp)
    assert_type(ConsumerApp.from_config(Path("a.toml"), tracing=True), ConsumerApp)


async def consumer_of_bytes() -> None:
    async with Consumer("orders", bootstrap_servers="k:9092", group_id="g") as consumer:
        assert_type(consumer, Consumer[bytes, bytes])
        async for record in consumer:
            assert_type(record.topic, str)
            assert_type(record.offset, int)
            assert_type(record.key, bytes | None)
            assert_type(record.value, bytes | None)
            assert_type(record.headers, tuple[tuple[str, bytes | None], ...])
            await record.commit()
            await consumer.commit(record)
        async for batch in consumer.batches(max_records=10):
            assert_type(batch, list[Message[bytes, bytes]])
        async for chunk in consumer.chunks():
            assert_type(list(chunk), list[Record])
        async for partition in consumer.partitions():
            assert_type(partition, ConsumerStream[bytes, bytes])
        assert_type(consumer.streams(2), list[ConsumerStream[bytes, bytes]])
        assert_type(await consumer.commit(), dict[TopicPartition, int])
        await consumer.commit({HERE: 5, TopicPartition("orders", 1): Offset(7, metadata="x")})
        assert_type(await consumer.committed(), dict[TopicPartition, int | None])
        assert_type(await consumer.position(HERE), int)
        consumer.seek(HERE, 5)
        consumer.pause(HERE)


async def consumer_of_orders(consumer: Consumer[str, Order]) -> None:
    async for message in consumer:
        assert_type(message, Message[str, Order])
        assert_type(message.key, str | None)
        if message.value is not None:
            assert_type(message.value.total, int)


def value_types(registry: SchemaRegistry) -> None:
    assert_type(Consumer("t", value_deserializer=Order), Consumer[bytes, Order])
    assert_type(Consumer("t", value_deserializer=Fast), Consumer[bytes, Fast])
    assert_type(Consumer("t", value_deserializer=Plain), Consumer[bytes, Plain])
    assert_type(Consumer("t", value_deserializer=Typed), Consumer[bytes, Typed])
    assert_type(Consumer("t", value_deserializer=list[Order]), Consumer[bytes, list[Order]])
    assert_type(Consumer("t", key_deserializer=str), Consumer[str, bytes])
    assert_type(Consumer("t", value_deserializer=bytes), Consumer[bytes, bytes])
    assert_type(Consumer("t", value_deserializer=parse), Consumer[bytes, Order])
    assert_type(Consumer("t", value_deserializer=lambda data: len(data)), Consumer[bytes, int])
    assert_type(Consumer("t", value_deserializer=json.loads), Consumer[bytes, Any])
    assert_type(Consumer("t", value_deserializer=json), Consumer[bytes, Any])
    assert_type(Consumer("t", value_deserializer=ByPlace()), Consumer[bytes, Order])
    assert_type(Consumer("t", value_deserializer=int64), Consumer[bytes, int])
    assert_type(Consumer("t", value_deserializer=registry.avro(Order)), Consumer[bytes, Order])
    assert_type(Consumer("t", key_deserializer=str, value_deserializer=Order), Consumer[str, Order])
    # the type of an async function is annotated, or inferred by `make_deserializer`
    consumer: Consumer[bytes, Order] = Consumer("t", value_deserializer=look_up)
    assert_type(consumer, Consumer[bytes, Order])
    assert_type(
        Consumer("t", value_deserializer=make_deserializer(look_up)), Consumer[bytes, Order]
    )


def deserializers(registry: SchemaRegistry) -> None:
    assert_type(make_deserializer(None), Deserializer[bytes])
    assert_type(make_deserializer(str), Deserializer[str])
    assert_type(make_deserializer("json"), Deserializer[Any])
    assert_type(make_deserializer(Order), Deserializer[Order])
    assert_type(make_deserializer(Fast), Deserializer[Fast])
    assert_type(make_deserializer(list[Order]), Deserializer[list[Order]])
    assert_type(make_deserializer(parse), Deserializer[Order])
    assert_type(make_deserializer(look_up), Deserializer[Order])
    assert_type(make_deserializer(ByPlace()), Deserializer[Order])
    assert_type(msgpack(Fast), Deserializer[Fast])
    assert_type(registry.avro(), RegistryFormat[Any])
    assert_type(registry.avro(Order), RegistryFormat[Order])
    assert_type(registry.json_schema(Fast), RegistryFormat[Fast])
    assert_type(registry.protobuf(Plain), RegistryFormat[Plain])


async def connector() -> None:
    async with ConsumerConnector(zookeeper_connect="zk:2181", group_id="g") as connector:
        streams = await connector.create_message_streams({"orders": 2}, value_decoder=parse)
        assert_type(streams, dict[str, list[MessageStream[bytes, Order]]])
        async for message in streams["orders"][0]:
            assert_type(message.value, Order | None)
        more = await connector.create_message_streams_by_filter(
            Whitelist("o.*"), key_decoder=bytes.hex
        )
        assert_type(more, list[MessageStream[str, bytes]])
        await connector.commit_offsets({HERE: 5})
