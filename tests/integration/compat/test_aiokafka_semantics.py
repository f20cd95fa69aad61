"""Behaviour that programs of aiokafka rely on, where `Consumer` behaves differently."""

import asyncio
import gc
from collections.abc import Collection

import pytest
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from asyncconsumer.compat.aiokafka import ConsumerRebalanceListener, TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from tests.integration.compat.test_aiokafka import consumer_of, orders
from tests.support.helpers import until


class Calls(ConsumerRebalanceListener):
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked)))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned)))


@pytest.mark.parametrize("grouped", [True, False])
async def test_start_creates_a_missing_topic_and_assigns_it(
    kafka: KafkaHandle, grouped: bool
) -> None:
    topic = f"{await kafka.topic()}-created"
    group = kafka.group() if grouped else None
    async with consumer_of(kafka, topic, group_id=group) as consumer:
        assert consumer.assignment() == {TopicPartition(topic, 0)}


async def test_a_listener_gets_revoked_partitions_before_each_assignment(
    kafka: KafkaHandle,
) -> None:
    topic, listener = await orders(kafka), Calls()
    partitions = {TopicPartition(topic, 0)}
    consumer = consumer_of(kafka, group_id=kafka.group())
    consumer.subscribe([topic], listener=listener)
    async with consumer:
        assert listener.calls == [("revoked", set()), ("assigned", partitions)]
    assert listener.calls[2:] == [("revoked", partitions)]


async def test_a_pattern_matches_prefixes_of_topic_names(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    consumer = consumer_of(kafka, group_id=kafka.group())
    consumer.subscribe(pattern=f"(?i){topic[:-1].upper()}|no such")
    async with consumer:
        await until(lambda: consumer.subscription() == {topic})
        assert (await consumer.getone()).value == b"0"
    with pytest.raises(ValueError, match="not a valid pattern"):
        consumer_of(kafka).subscribe(pattern="^(orders(")


async def test_a_partition_without_an_offset_raises_until_a_seek(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    tp, group = TopicPartition(topic, 0), kafka.group()
    async with consumer_of(kafka, topic, group_id=group, auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.getone()
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.getmany(tp, timeout_ms=20_000)
        consumer.seek(tp, 1000)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone(tp)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getmany(timeout_ms=20_000)
        await consumer.seek_to_beginning()
        assert (await consumer.getone()).offset == 0


async def test_stop_ends_a_getmany_without_an_error(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    consumer = consumer_of(kafka, topic, group_id=kafka.group())
    await consumer.start()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(consumer.getmany(timeout_ms=600_000))
        await until(lambda: consumer._consumer._whole._stream.is_waiting)
        await consumer.stop()
    assert waiting.result() == {}
    with pytest.raises(ConsumerStoppedError):
        await consumer.getmany(timeout_ms=10)


async def test_partitions_that_are_not_assigned_raise_illegal_state_error(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic()
    tp = TopicPartition(topic, 0)
    async with consumer_of(kafka) as consumer:
        consumer.assign([tp])
        with pytest.raises(IllegalStateError):
            await consumer.seek_to_committed(TopicPartition(topic, 1))
    async with consumer_of(kafka, group_id=kafka.group()) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(IllegalStateError, match="No partitions assigned"):
            await consumer.commit({tp: 1})


def test_the_loop_argument_is_deprecated_and_may_be_a_stopped_loop(kafka: KafkaHandle) -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.warns(DeprecationWarning, match="`loop` is deprecated"):
            consumer = consumer_of(kafka, loop=loop)
        loop.run_until_complete(consumer.start())
        loop.run_until_complete(consumer.stop())
    finally:
        loop.close()
    with pytest.raises(RuntimeError, match="no running event loop"):
        consumer_of(kafka)
    with pytest.raises(TypeError, match="must be an event loop"):
        consumer_of(kafka, loop="loop")


async def test_a_consumer_that_was_not_stopped_is_reported(kafka: KafkaHandle) -> None:
    consumers = [consumer_of(kafka)]
    await consumers[0].start()
    inner = consumers[0]._consumer

    def forget() -> None:
        consumers.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaConsumer"):
        forget()
    await inner.__aexit__(None, None, None)
