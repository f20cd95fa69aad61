"""Reading with AIOKafkaConsumer from several tasks, and around changes of the subscription."""

import asyncio
from collections.abc import Awaitable, Collection
from typing import Any

import pytest
from aiokafka.errors import (
    ConsumerStoppedError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from asyncconsumer.compat.aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from asyncconsumer.testing.handles import KafkaHandle
from tests.integration.compat.test_aiokafka import consumer_of, orders, send
from tests.support.helpers import until


class Listener(ConsumerRebalanceListener):
    """A listener that can be extended by one of its two methods."""

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        pass

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        pass


async def ends(call: Awaitable[object]) -> bool:
    """Return whether the call ends because the consumer is stopped."""
    try:
        await call
    except ConsumerStoppedError:
        return True
    return False


async def test_a_task_that_waits_for_one_partition_does_not_block_other_tasks(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic(partitions=2)
    await send(kafka, topic, [b"0", b"1"], partition=1)
    async with consumer_of(kafka, topic) as consumer, asyncio.TaskGroup() as tasks:
        single = tasks.create_task(ends(consumer.getone(TopicPartition(topic, 0))))
        many = tasks.create_task(consumer.getmany(TopicPartition(topic, 0), timeout_ms=600_000))
        await asyncio.sleep(0)
        assert (await consumer.getone(TopicPartition(topic, 1))).value == b"0"
        records = await consumer.getmany(TopicPartition(topic, 1), timeout_ms=600_000)
        assert [record.value for record in records[TopicPartition(topic, 1)]] == [b"1"]
        assert not single.done()
        assert not many.done()
        await consumer.stop()
    assert single.result()
    assert many.result() == {}


async def test_a_partition_that_is_not_assigned_yet_delivers_nothing(kafka: KafkaHandle) -> None:
    first, second = await orders(kafka), await orders(kafka)
    async with consumer_of(kafka, first, group_id=kafka.group()) as consumer:
        assert await consumer.getmany(TopicPartition(second, 0), timeout_ms=200) == {}
        consumer.subscribe([second])
        assert (await consumer.getone(TopicPartition(second, 0))).value == b"0"


@pytest.mark.parametrize("grouped", [True, False])
async def test_calls_wait_for_a_subscription(kafka: KafkaHandle, grouped: bool) -> None:
    topic = await orders(kafka)
    consumer = consumer_of(kafka, group_id=kafka.group() if grouped else None)
    async with consumer, asyncio.TaskGroup() as tasks:
        assert await consumer.getmany(timeout_ms=100) == {}
        waiting = tasks.create_task(consumer.getone())
        await asyncio.sleep(0)
        consumer.subscribe([topic])
        assert (await waiting).value == b"0"
        waiting = tasks.create_task(consumer.getone(TopicPartition(topic, 7)))
        await asyncio.sleep(0)
        consumer.unsubscribe()
        consumer.assign([TopicPartition(topic, 7)])
        consumer.unsubscribe()
        await until(lambda: not consumer._consumer.is_subscribed)
        assert not waiting.done()
        waiting.cancel()


async def test_stop_ends_calls_that_wait_for_a_subscription(kafka: KafkaHandle) -> None:
    consumer = consumer_of(kafka)
    await consumer.start()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(ends(consumer.getone()))
        await asyncio.sleep(0)
        await consumer.stop()
    assert waiting.result()


async def test_a_loop_continues_after_unsubscribe_and_subscribe(kafka: KafkaHandle) -> None:
    first, second = await orders(kafka), await orders(kafka, 5)
    values = []
    async with consumer_of(kafka, first, group_id=kafka.group()) as consumer:
        async for record in consumer:
            values.append((record.topic, record.value))
            if values == [(first, b"%d" % n) for n in range(3)]:
                consumer.unsubscribe()
                consumer.subscribe([second])
            if len(values) == 8:
                break
    assert values[3:] == [(second, b"%d" % n) for n in range(5)]


async def test_unsubscribe_and_subscribe_of_a_static_member_cause_no_rebalance(
    kafka: KafkaHandle,
) -> None:
    topic, group = await orders(kafka, partitions=2), kafka.group()
    calls: list[set[TopicPartition]] = []

    class Recorder(Listener):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            calls.append(set(revoked))

    first = consumer_of(kafka, group_id=group, group_instance_id="first")
    first.subscribe([topic], listener=Recorder())
    async with (
        first,
        consumer_of(kafka, topic, group_id=group, group_instance_id="second") as second,
    ):
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
        before = second.assignment()
        calls.clear()
        second.unsubscribe()
        second.subscribe([topic])
        assert not second.assignment()
        await until(lambda: second.assignment() == before)
        assert (await first.getone()).value == b"0"
        assert calls == []


async def test_a_second_subscribe_with_the_same_topics_calls_its_listener(
    kafka: KafkaHandle,
) -> None:
    topic = await orders(kafka)
    assignments: list[set[TopicPartition]] = []

    class Recorder(Listener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            assignments.append(set(assigned))

    async with consumer_of(kafka, topic, group_id=kafka.group()) as consumer:
        consumer.subscribe([topic], listener=Recorder())
        await until(lambda: bool(assignments))
    assert assignments == [{TopicPartition(topic, 0)}]


async def test_a_listener_can_seek_and_pause_during_start(kafka: KafkaHandle) -> None:
    topic = await orders(kafka, partitions=2)
    consumer = consumer_of(kafka, group_id=kafka.group())

    class Seeker(Listener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            consumer.pause(TopicPartition(topic, 1))
            for tp in assigned:
                consumer.seek(tp, 2)

    consumer.subscribe([topic], listener=Seeker())
    async with consumer:
        assert consumer.paused() == {TopicPartition(topic, 1)}
        assert (await consumer.getone()).value == b"2"
        assert await consumer.getmany(timeout_ms=200) == {}


async def test_a_commit_in_a_listener_includes_the_last_record(kafka: KafkaHandle) -> None:
    topic = await orders(kafka, partitions=2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    options: dict[str, Any] = {"group_id": kafka.group(), "enable_auto_commit": False}
    consumer = consumer_of(kafka, **options)

    class Committer(Listener):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            if revoked:
                await consumer.commit()

    consumer.subscribe([topic], listener=Committer())
    async with consumer:
        for tp in partitions:
            assert (await consumer.getone(tp)).offset == 0
        async with consumer_of(kafka, topic, **options):
            assert [await consumer.committed(tp) for tp in partitions] == [1, 1]


async def test_a_commit_by_another_task_includes_the_last_record(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    async with consumer_of(
        kafka, topic, group_id=kafka.group(), enable_auto_commit=False
    ) as consumer:
        await consumer.getone()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.commit())
        assert await consumer.committed(TopicPartition(topic, 0)) == 1


async def test_errors_without_a_valid_offset_have_the_arguments_of_aiokafka(
    kafka: KafkaHandle,
) -> None:
    topic = await orders(kafka)
    tp = TopicPartition(topic, 0)
    async with consumer_of(
        kafka, topic, group_id=kafka.group(), auto_offset_reset="none"
    ) as consumer:
        with pytest.raises(NoOffsetForPartitionError) as missing:
            await consumer.getone()
        assert missing.value.args == (tp,)
        consumer.seek(tp, 99)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError) as out_of_range:
                await consumer.getmany(timeout_ms=20_000)
            assert out_of_range.value.args == ({tp: 99},)
        await consumer.seek_to_beginning(*out_of_range.value.args[0])
        consumer.seek(tp, 98)
        records = aiter(consumer)
        with pytest.raises(OffsetOutOfRangeError) as in_loop:
            await anext(records)
        assert in_loop.value.args == ({tp: 98},)


async def test_a_slow_reader_releases_its_partitions_and_gets_them_again_later(
    kafka: KafkaHandle,
) -> None:
    topic, group = await orders(kafka, 20), kafka.group()
    slow = consumer_of(kafka, topic, group_id=group, max_poll_interval_ms=500, max_poll_records=2)
    async with slow:
        assert (await slow.getone()).offset == 0
        records = aiter(slow)
        assert (await anext(records)).offset == 1
        async with consumer_of(kafka, topic, group_id=group) as other:
            assert (await other.getone()).offset == 1
            assert slow.assignment() == set()
        assert (await anext(records)).offset == 2
        assert slow.assignment() == {TopicPartition(topic, 0)}
        await until(lambda: not slow.assignment())
        assert await slow.getmany() == {}
        await until(lambda: bool(slow.assignment()))


async def test_the_coordinator_attribute_has_the_member_id(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    async with consumer_of(kafka, topic, group_id=kafka.group()) as consumer:
        identity = consumer._coordinator
        assert identity is not None
        assert identity.member_id.startswith("asyncconsumer-")


async def test_the_producer_can_be_imported_with_the_consumer(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=1)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"value")
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        assert (await consumer.getone()).value == b"value"
