"""Code that must not type-check: each marked line has that error. It never runs."""

import json

from asyncconsumer import (
    Consumer,
    ConsumerApp,
    ConsumerConnector,
    RangeReader,
    SimpleConsumer,
    TopicPartition,
)
from asyncconsumer.serdes import Deserializer, SchemaRegistry, make_deserializer, msgpack
from tests.typing.good import HERE, Order, look_up, parse


async def simple(consumer: SimpleConsumer) -> None:
    SimpleConsumer()  # error: call-arg
    consumer.read("orders", "0")  # error: arg-type
    await consumer.commit_offsets("g", {"orders": 5})  # error: dict-item
    async for record in consumer.read("orders", 0):
        record.value.decode()  # error: union-attr
        record.no_such  # error: attr-defined


async def records(consumer: Consumer[bytes, Order]) -> None:
    for _ in consumer:  # error: attr-defined
        pass
    async for message in consumer:
        message.value.total  # error: union-attr
        if message.value is not None:
            message.value.no_such  # error: attr-defined
            len(message.value)  # error: arg-type


async def commits(consumer: Consumer) -> None:
    await consumer.commit({"orders": 5})  # error: dict-item
    await consumer.commit({HERE: "5"})  # error: dict-item
    await consumer.commit([HERE])  # error: arg-type
    await consumer.committed({"orders"})  # error: arg-type
    consumer.commit()  # error: unused-coroutine
    consumer.batches("10")  # error: arg-type
    consumer.streams()  # error: call-arg
    consumer.seek("orders", 5)  # error: arg-type
    consumer.pause([HERE])  # error: arg-type
    TopicPartition("orders", "0")  # error: arg-type


def given() -> None:
    Consumer(5)  # error: arg-type
    Consumer("t", value_deserializer=5)  # error: arg-type
    Consumer("t", value_deserializer=Order(total=5))  # error: arg-type
    Consumer("t", value_deserializer=simple)  # error: arg-type
    Consumer("t", value_deserializer=look_up)  # error: arg-type
    Consumer("t", value_deserializer=str.upper)  # error: arg-type
    wrong: Consumer[bytes, str] = Consumer("t", value_deserializer=Order)  # error: arg-type
    wrong_key: Consumer[str] = Consumer("t", key_deserializer=parse)  # error: arg-type
    del wrong, wrong_key


def options() -> None:
    Consumer("t", bootstrap_server="k:9092")  # error: call-arg
    Consumer("t", auto_offset_reset="earlist")  # error: arg-type
    Consumer("t", session_timeout_ms="45s")  # error: arg-type
    Consumer("t", max_poll_records=500)  # error: call-arg
    Consumer("t", partition_assignment_strategy="stiky")  # error: arg-type
    Consumer("t", commit_policy="none")  # error: arg-type
    Consumer("t", config={"group_id": "g"})  # error: arg-type
    Consumer.from_env("t", bootstrap_server="k:9092")  # error: call-arg
    Consumer.from_config("a.toml", "t", isolation_level="committed")  # error: arg-type
    ConsumerApp.from_env(commit_policy="manual")  # error: call-arg
    ConsumerApp(group_ids="g")  # error: call-arg
    ConsumerApp(commit_policy="manual")  # error: call-arg
    ConsumerConnector(zookeeper="zk:2181")  # error: call-arg
    ConsumerConnector(offsets_storage="disk")  # error: arg-type
    SimpleConsumer("k:9092", isolation_level="committed")  # error: arg-type
    SimpleConsumer("k:9092", group_id="g")  # error: call-arg
    RangeReader("k:9092", security_protocol="TLS")  # error: arg-type


def deserializers(registry: SchemaRegistry) -> None:
    make_deserializer(5)  # error: call-overload
    make_deserializer("jsn")  # error: call-overload
    msgpack(5)  # error: arg-type
    registry.avro(5)  # error: call-overload
    registry.protobuf(5)  # error: call-overload
    SchemaRegistry("http://r:8081", basic_auth="user:password")  # error: arg-type
    text: Deserializer[str] = make_deserializer(Order)  # error: arg-type
    del text


async def connector(connector: ConsumerConnector) -> None:
    await connector.create_message_streams(["orders"])  # error: arg-type
    await connector.create_message_streams({"orders": "2"})  # error: dict-item
    await connector.create_message_streams({"orders": 1}, value_decoder=json)  # error: arg-type
    await connector.commit_offsets({HERE: None})  # error: dict-item
