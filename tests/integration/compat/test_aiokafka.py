"""The documented uses of aiokafka's consumer, with only the import changed."""

import asyncio
import copy
import dataclasses
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaConnectionError,
    OffsetOutOfRangeError,
)

from asyncconsumer.compat.aiokafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until


async def send(kafka: KafkaHandle, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait(
                topic, value, key=b"k", partition=partition, headers=[("h", b"1")]
            )


async def orders(kafka: KafkaHandle, number: int = 3, partitions: int = 1) -> str:
    topic = await kafka.topic(partitions=partitions)
    for partition in range(partitions):
        await send(kafka, topic, [b"%d" % n for n in range(number)], partition)
    return topic


def consumer_of(kafka: KafkaHandle, *topics: str, **options: Any) -> AIOKafkaConsumer:
    options.setdefault("auto_offset_reset", "earliest")
    return AIOKafkaConsumer(*topics, bootstrap_servers=kafka.bootstrap_servers, **options)


async def take(records: AsyncIterator[Any], number: int) -> list[bytes]:
    values = []
    async for record in records:
        values.append(record.value)
        if len(values) == number:
            break
    return values


async def test_records_are_read_between_start_and_stop(kafka: KafkaHandle) -> None:
    topic, group = await orders(kafka), kafka.group()
    consumer = consumer_of(kafka, topic, group_id=group)
    await consumer.start()
    values = []
    try:
        async for message in consumer:
            values.append((message.topic, message.partition, message.offset, message.value))
            if len(values) == 3:
                break
    finally:
        await consumer.stop()
    assert values == [(topic, 0, n, b"%d" % n) for n in range(3)]
    async with consumer_of(kafka, topic, group_id=group) as again:
        assert await again.committed(TopicPartition(topic, 0)) == 3


async def test_a_record_equals_the_record_of_aiokafka(kafka: KafkaHandle) -> None:
    topic = await orders(kafka, 1)
    async with consumer_of(kafka, topic) as replacement:
        record = await replacement.getone()
    async with aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    ) as theirs:
        expected = await theirs.getone()
    assert isinstance(record, ConsumerRecord)
    match record:
        case ConsumerRecord(topic=name, offset=0):
            assert name == topic
        case _:
            pytest.fail("not a ConsumerRecord")
    assert (record == expected, expected == record) == (True, True)
    assert repr(record) == repr(expected)
    assert dataclasses.asdict(record) == dataclasses.asdict(expected)
    for plain in (copy.copy(record), copy.deepcopy(record)):
        assert type(plain) is aiokafka.ConsumerRecord
        assert plain == expected
    assert dataclasses.replace(record, value=b"x").value == b"x"


async def test_getmany_returns_lists_by_partition(kafka: KafkaHandle) -> None:
    topic = await orders(kafka, 3, partitions=2)
    counts: dict[TopicPartition, int] = {}
    async with consumer_of(kafka, topic) as consumer:
        while sum(counts.values()) < 6:
            batch = await consumer.getmany(timeout_ms=5000, max_records=2)
            assert sum(map(len, batch.values())) in (1, 2)
            for tp, records in batch.items():
                assert type(tp) is TopicPartition
                counts[tp] = counts.get(tp, 0) + len(records)
        assert await consumer.getmany() == {}
    assert counts == {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 3}


async def test_no_record_is_repeated_after_a_change_of_the_reading_method(
    kafka: KafkaHandle,
) -> None:
    topic = await orders(kafka, 5)
    async with consumer_of(kafka, topic, group_id=kafka.group()) as consumer:
        values = [(await consumer.getone()).value]
        with suppress(ZeroDivisionError):
            async for record in consumer:
                values.append(record.value)
                raise ZeroDivisionError
        values += await take(aiter(consumer), 1)
        for records in (await consumer.getmany(timeout_ms=5000, max_records=1)).values():
            values += [record.value for record in records]
        values.append((await anext(consumer)).value)
    assert values == [b"0", b"1", b"2", b"3", b"4"]


async def test_several_tasks_can_call_getone(kafka: KafkaHandle) -> None:
    topic = await orders(kafka, 4)
    async with consumer_of(kafka, topic) as consumer, asyncio.TaskGroup() as group:
        tasks = [group.create_task(consumer.getone()) for _ in range(4)]
    assert sorted(task.result().offset for task in tasks) == [0, 1, 2, 3]


async def test_commit_accepts_offsets_with_metadata(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    tp, group = TopicPartition(topic, 0), kafka.group()
    async with consumer_of(kafka, topic, group_id=group, enable_auto_commit=False) as consumer:
        assert await consumer.committed(tp) is None
        await consumer.getone()
        assert await consumer.position(tp) == 1
        await consumer.commit()
        assert await consumer.committed(tp) == 1
        await consumer.commit({tp: 2})
        assert await consumer.committed(tp) == 2
        await consumer.commit({tp: OffsetAndMetadata(3, "note")})
        assert await consumer.committed(tp) == 3
        with pytest.raises(IllegalStateError):
            await consumer.commit({TopicPartition(topic, 7): 1})
        with pytest.raises(ValueError, match=r"{}"):
            await consumer.commit({})
        await consumer.seek_to_beginning()
        assert await consumer.seek_to_committed() == {tp: 3}
        assert await consumer.position(tp) == 3
    async with consumer_of(kafka, topic, group_id=group) as again:
        assert await again.position(tp) == 3


async def test_auto_commit_leaves_out_the_record_in_flight(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    tp = TopicPartition(topic, 0)
    async with consumer_of(
        kafka, topic, group_id=kafka.group(), auto_commit_interval_ms=50
    ) as consumer:
        await consumer.getone()
        await consumer.getone()

        async def committed() -> int:
            return await consumer.committed(tp) or 0  # a commit before the second record stores 0

        while not await committed():
            await asyncio.sleep(0.02)
        assert await committed() == 1


async def test_assign_and_seek_without_waiting(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    tp = TopicPartition(topic, 0)
    consumer = consumer_of(kafka)
    await consumer.start()
    consumer.assign([tp])
    assert consumer.assignment() == {tp}
    consumer.seek(tp, 2)
    assert (await consumer.getone(tp)).value == b"2"
    with pytest.raises(ValueError, match="positive"):
        consumer.seek(tp, -1)
    with pytest.raises(IllegalStateError):
        consumer.seek(TopicPartition(topic, 5), 0)
    with pytest.raises(IllegalStateError):
        consumer.subscribe([topic])
    await consumer.seek_to_beginning(tp)
    assert await consumer.position(tp) == 0
    await consumer.seek_to_end(tp)
    assert await consumer.position(tp) == 3
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.subscribe([topic])
    assert (await consumer.getone()).value == b"0"
    assert consumer.subscription() == {topic}
    await consumer.stop()


async def test_a_paused_partition_delivers_nothing(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    tp = TopicPartition(topic, 0)
    async with consumer_of(kafka, topic) as consumer:
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        assert await consumer.getmany(timeout_ms=300) == {}
        consumer.resume(tp)
        assert consumer.paused() == set()
        assert (await consumer.getone()).value == b"0"


async def test_offsets_and_topics_are_looked_up_as_by_aiokafka(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    tp = TopicPartition(topic, 0)
    async with consumer_of(kafka, topic) as consumer:
        record = await consumer.getone()
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 3}
        offsets = await consumer.offsets_for_times({tp: record.timestamp})
        assert offsets == {tp: OffsetAndTimestamp(0, record.timestamp)}
        assert await consumer.offsets_for_times({tp: record.timestamp + 10**7}) == {tp: None}
        with pytest.raises(ValueError, match="-1"):
            await consumer.offsets_for_times({tp: -1})
        assert consumer.highwater(tp) == 3
        assert consumer.last_stable_offset(tp) == -1
        assert abs((consumer.last_poll_timestamp(tp) or 0) - record.timestamp) < 60_000
        assert topic in await consumer.topics()
        assert consumer.partitions_for_topic(topic) == {0}
        assert consumer.partitions_for_topic("missing") is None
        with pytest.raises(IllegalOperation):
            await consumer.commit()
        with pytest.raises(IllegalOperation):
            await consumer.committed(tp)


async def test_a_failing_deserializer_raises_its_own_error_once(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=1)
    await send(kafka, topic, [b'{"a": 1}', b"{", b'{"a": 2}'])
    async with consumer_of(
        kafka, topic, key_deserializer=bytes.decode, value_deserializer=json.loads
    ) as consumer:
        record = await consumer.getone()
        assert (record.key, record.value, record.serialized_value_size) == ("k", {"a": 1}, 8)
        with pytest.raises(json.JSONDecodeError):
            await consumer.getone()
        assert (await consumer.getone()).value == {"a": 2}


class Recorder(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))
        raise RuntimeError("a listener's error is logged")

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))


async def test_subscribe_accepts_a_pattern_and_a_listener(kafka: KafkaHandle) -> None:
    topic = await orders(kafka, 1)
    listener = Recorder()
    consumer = consumer_of(kafka, group_id=kafka.group())
    with pytest.raises(TypeError):
        consumer.subscribe()
    with pytest.raises(TypeError):
        consumer.subscribe([topic], listener=object())
    with pytest.raises(ValueError, match="not a valid pattern"):
        consumer.subscribe(pattern="(")
    consumer.subscribe(pattern=f"^{topic}$", listener=listener)
    async with consumer:
        assert (await consumer.getone()).value == b"0"
        assert consumer.subscription() == {topic}
    assert listener.calls[:2] == [("revoked", set()), ("assigned", {TopicPartition(topic, 0)})]


async def test_stop_ends_the_loops_of_other_tasks(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    consumer = consumer_of(kafka, topic, group_id=kafka.group())
    await consumer.start()
    values: list[bytes] = []

    async def read() -> None:
        async for record in consumer:
            values.append(record.value)  # noqa: PERF401 - read by another task meanwhile

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        await until(lambda: len(values) == 3)
        await consumer.stop()
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await consumer.getone()
    with pytest.raises(ConsumerStoppedError):
        aiter(consumer)


async def test_a_loop_raises_error_classes_of_aiokafka(kafka: KafkaHandle) -> None:
    topic = await orders(kafka)
    async with consumer_of(kafka, topic, auto_offset_reset="none") as consumer:
        consumer.seek(TopicPartition(topic, 0), 99)
        with pytest.raises(OffsetOutOfRangeError):
            async for _ in consumer:
                pass


async def test_start_fails_without_a_broker() -> None:
    consumer = AIOKafkaConsumer("orders", bootstrap_servers="127.0.0.1:1")
    with pytest.raises(KafkaConnectionError):
        await consumer.start()
    await consumer.stop()


async def test_wrong_arguments_raise_type_and_value_errors() -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        AIOKafkaConsumer("orders", no_such_option=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="max_poll_records"):
        AIOKafkaConsumer("orders", max_poll_records=0)
    assert issubclass(CommitFailedError, Exception)


async def test_both_consumers_can_be_members_of_one_group(kafka: KafkaHandle) -> None:
    topic, group = await orders(kafka, 1, partitions=2), kafka.group()
    async with (
        aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
        ) as theirs,
        consumer_of(kafka, topic, group_id=group) as replacement,
    ):
        await until(lambda: len(replacement.assignment()) == len(theirs.assignment()) == 1)
        assert replacement.assignment() | theirs.assignment() == {
            TopicPartition(topic, 0),
            TopicPartition(topic, 1),
        }
