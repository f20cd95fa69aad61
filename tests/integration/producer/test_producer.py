"""The producer on real brokers: offsets, order, compression, faults and limits."""

import asyncio
from collections import defaultdict
from typing import Any, get_args

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.partitioner import DefaultPartitioner

from asyncconsumer import Consumer, Producer, RecordMetadata, TopicPartition
from asyncconsumer.config.choices import CompressionType
from asyncconsumer.errors import (
    ClosedError,
    DeliveryTimedOut,
    HostNotAllowed,
    InvalidTopic,
    RecordTooLarge,
    SerializationFailed,
    UnknownTopicOrPartition,
)
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle
from asyncconsumer.testing.proxy.faults import Frame, Verdict
from asyncconsumer.testing.proxy.frames import kafka_api_key

PRODUCE = 0


async def read(servers: str, topic: str, count: int) -> list[Any]:
    async with (
        asyncio.timeout(60),
        AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as reader,
    ):
        return [await reader.getone() for _ in range(count)]


async def end_of(servers: str, topic: str) -> int:
    async with AIOKafkaConsumer(bootstrap_servers=servers) as reader:
        ends: dict[Any, int] = await reader.end_offsets([TopicPartition(topic, 0)])
    return sum(ends.values())


async def test_send_reports_partition_offset_and_timestamp_of_a_record(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=3)
    headers = (("a", b"1"), ("a", None))
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        deliveries = [
            await producer.send(topic, b"v%d" % n, key=b"%d" % n, headers=headers)
            for n in range(50)
        ]
        deliveries.append(await producer.send(topic, None))
        deliveries.append(await producer.send(topic, b"x", partition=2, timestamp_ms=1234))
        places = [await delivery for delivery in deliveries]
        assert all(delivery.done() for delivery in deliveries)
        place = await producer.send_and_wait(topic, "text", key="k", headers={"h": b"1"})
    records = {
        (record.partition, record.offset): record
        for record in await read(kafka.bootstrap_servers, topic, 53)
    }
    choose = DefaultPartitioner()
    for n in range(50):
        record = records[places[n].partition, places[n].offset]
        assert (record.key, record.value, record.headers) == (b"%d" % n, b"v%d" % n, headers)
        assert record.partition == choose(record.key, [0, 1, 2], [0, 1, 2])
        assert record.timestamp == places[n].timestamp_ms
    record = records[2, places[51].offset]
    assert (record.value, record.timestamp, places[51].timestamp_ms) == (b"x", 1234, 1234)
    assert records[place.partition, place.offset].value == b"text"


async def test_send_reports_the_log_append_time(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(config={"message.timestamp.type": "LogAppendTime"})
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        place = await producer.send_and_wait(topic, b"v", timestamp_ms=1)
    (record,) = await read(kafka.bootstrap_servers, topic, 1)
    assert place == RecordMetadata(topic, 0, 0, record.timestamp)
    assert record.timestamp > 1


@pytest.mark.parametrize("codec", get_args(CompressionType))
async def test_compressed_batches_are_read_by_both_clients(
    kafka: KafkaHandle, codec: CompressionType
) -> None:
    topic = await kafka.topic()
    values = [b"%d" % n * 1000 for n in range(300)]
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers, compression_type=codec
    ) as producer:
        for value in values:
            await producer.send(topic, value)
    records = await read(kafka.bootstrap_servers, topic, len(values))
    assert [record.value for record in records] == values
    async with Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        max_records=len(values),
    ) as consumer:
        assert [record.value async for record in consumer] == values


async def test_flush_sends_a_batch_before_linger_ms_is_over(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with Producer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=600_000) as producer:
        first = await producer.send(topic, b"0")
        await asyncio.sleep(0.1)
        second = await producer.send(topic, b"1")
        assert not first.done()
        async with asyncio.timeout(30):
            await producer.flush()
        assert first.done()
        assert second.done()
        assert (await second).offset == 1
        last = await producer.send(topic, b"2")
    assert (await last).offset == 2  # the end of the block flushes, too


async def test_send_waits_while_the_buffer_is_full(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers, max_buffered_bytes=1000, linger_ms=600_000
    ) as producer:
        await producer.send(topic, bytes(1000))
        blocked = [asyncio.create_task(producer.send(topic, b"%d" % n)) for n in range(3)]  # noqa: TID251
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in blocked)
        blocked[0].cancel()
        await producer.flush()
        deliveries = [await task for task in blocked[1:]]
        await producer.flush()
        assert [(await delivery).offset for delivery in deliveries] == [1, 2]


async def test_a_large_record_is_refused_and_delays_no_other(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(config={"max.message.bytes": "5000"})
    async with Producer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=600_000) as producer:
        values = [b"a", b"b" * 6000, b"c", b"d" * 100]
        deliveries = [await producer.send(topic, value) for value in values]
        with pytest.raises(RecordTooLarge):
            await producer.flush()
        with pytest.raises(RecordTooLarge):
            await deliveries[1]
        offsets = [(await delivery).offset for delivery in (deliveries[0], *deliveries[2:])]
        assert offsets == [0, 1, 2]
        place = await producer.send(topic, b"e")
        await producer.flush()
        assert (await place).offset == 3
    records = await read(kafka.bootstrap_servers, topic, 4)
    assert [record.value for record in records] == [b"a", b"c", b"d" * 100, b"e"]


async def test_send_raises_for_an_invalid_topic_partition_or_value(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        with pytest.raises(InvalidTopic):
            await producer.send("no topic", b"v")
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send(topic, b"v", partition=7)
        with pytest.raises(SerializationFailed, match="of type int, cannot be serialized"):
            await producer.send(topic, 7)
        assert (await producer.send_and_wait(topic, b"v")).offset == 0
    with pytest.raises(ClosedError):
        await producer.send(topic, b"v")


@pytest.mark.parametrize("times", [1, 3])
async def test_records_whose_responses_are_lost_are_written_once_and_in_order(
    kafka_cluster: KafkaCluster, times: int
) -> None:
    """Check several batches that are in flight when the connection breaks."""
    topic = await kafka_cluster.topic()
    requested: set[int] = set()
    lost = 0

    def see(frame: Frame) -> Verdict:
        if kafka_api_key(frame) == PRODUCE:
            requested.add(frame.connection)
        return Verdict.PASS

    def lose(frame: Frame) -> Verdict:
        nonlocal lost
        if frame.connection not in requested or lost == times:
            return Verdict.PASS
        lost += 1
        return Verdict.CUT

    leader = await kafka_cluster.leader(topic)
    proxy = kafka_cluster.proxies[leader.node_id]
    async with Producer(
        bootstrap_servers=kafka_cluster.proxied_servers, max_batch_bytes=500
    ) as producer:
        await producer.send_and_wait(topic, b"0")
        proxy.on_frame("up", see)
        proxy.on_frame("down", lose)
        deliveries = [await producer.send(topic, b"%d" % n) for n in range(1, 1000)]
        assert [(await delivery).offset for delivery in deliveries] == [*range(1, 1000)]
        proxy.heal()
    assert lost == times
    assert await end_of(kafka_cluster.bootstrap_servers, topic) == 1000
    records = await read(kafka_cluster.bootstrap_servers, topic, 1000)
    assert [int(record.value) for record in records] == [*range(1000)]


async def test_a_record_after_a_timed_out_one_is_written(
    kafka_cluster: KafkaCluster,
) -> None:
    topic = await kafka_cluster.topic()
    leader = await kafka_cluster.leader(topic)
    proxy = kafka_cluster.proxies[leader.node_id]
    async with Producer(
        bootstrap_servers=kafka_cluster.proxied_servers, delivery_timeout_ms=1_000
    ) as producer:
        await producer.send_and_wait(topic, b"first")
        proxy.on_frame("down", lambda frame: Verdict.CUT)
        with pytest.raises(DeliveryTimedOut, match="was not acknowledged within 1000 ms"):
            await producer.send_and_wait(topic, b"given up")
        proxy.heal()
        async with asyncio.timeout(60):
            place = await delivered(producer, topic, b"another")
    records = await read(kafka_cluster.bootstrap_servers, topic, place.offset + 1)
    assert (records[0].value, records[-1].value) == (b"first", b"another")


async def delivered(producer: Producer, topic: str, value: bytes) -> RecordMetadata:
    while True:
        try:
            return await producer.send_and_wait(topic, value)
        except DeliveryTimedOut:
            continue


async def test_a_wrong_sequence_number_makes_the_producer_get_a_new_id(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"0")
        queue = producer._sender.queues[TopicPartition(topic, 0)]
        assert queue.producer is not None
        before = queue.producer.producer_id
        queue.producer = queue.producer._replace(sequence=7)
        queue._written_sequence = 7
        assert (await producer.send_and_wait(topic, b"1")).offset == 1
        assert queue.producer.producer_id != before


async def test_keys_keep_their_order_while_leaders_move(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic(partitions=3)
    stop = asyncio.Event()
    sent: dict[bytes, list[int]] = defaultdict(list)
    deliveries = []

    async def send(producer: Producer) -> None:
        number = 0
        while not stop.is_set():
            key = b"%d" % (number % 7)
            deliveries.append(await producer.send(topic, b"%d" % number, key=key))
            sent[key].append(number)
            number += 1
            await asyncio.sleep(0.001)

    async with (
        Producer(
            bootstrap_servers=kafka_cluster.bootstrap_servers, request_timeout_ms=3_000
        ) as producer,
        asyncio.timeout(120),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(send(producer))
        while len(deliveries) < 200:
            await asyncio.sleep(0.01)
        leader = await kafka_cluster.leader(topic)
        await leader.stop()
        before = len(deliveries)
        await deliveries[before - 1]
        await leader.start()
        while len(deliveries) < before + 200:
            await asyncio.sleep(0.01)
        stop.set()
    places = [await delivery for delivery in deliveries]
    assert len(set(places)) == len(places)
    records = await read(kafka_cluster.bootstrap_servers, topic, len(places))
    received: dict[bytes, list[int]] = defaultdict(list)
    for record in records:
        received[record.key].append(int(record.value))
    assert received == sent


async def test_only_allowed_hosts_are_connected(kafka: KafkaHandle) -> None:
    """Check an allowed bootstrap server that advertises an address that is not allowed."""
    topic = await kafka.topic()
    named = f"localhost:{kafka.bootstrap_servers.rpartition(':')[2]}"
    async with Producer(bootstrap_servers=named, allowed_hosts="localhost") as producer:
        with pytest.raises(HostNotAllowed):
            await producer.send_and_wait(topic, b"v")
    assert await end_of(kafka.bootstrap_servers, topic) == 0


async def test_close_ends_after_close_timeout_ms(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic()
    leader = await kafka_cluster.leader(topic)
    proxy = kafka_cluster.proxies[leader.node_id]
    async with Producer(
        bootstrap_servers=kafka_cluster.proxied_servers, close_timeout_ms=300
    ) as producer:
        await producer.send_and_wait(topic, b"first")
        proxy.on_frame("down", lambda frame: Verdict.CUT)
        delivery = await producer.send(topic, b"second")
    with pytest.raises(ClosedError):
        await delivery
