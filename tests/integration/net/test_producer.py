"""Records that the producer writes once, to the intended partition."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.partitioner import DefaultPartitioner

from asyncconsumer import TopicPartition
from asyncconsumer.errors import (
    ConnectionLost,
    HostNotAllowed,
    InvalidTopic,
    OutOfOrderSequence,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from asyncconsumer.net.partition_writer import Outcome, ProducerRecord
from asyncconsumer.net.record_writer import RecordWriter
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle
from asyncconsumer.testing.proxy.faults import Frame, Verdict
from asyncconsumer.testing.proxy.frames import kafka_api_key
from tests.net.test_producer import failures, open_producer

PRODUCE = 0


async def read(servers: str, topic: str, count: int) -> list[Any]:
    async with (
        asyncio.timeout(60),
        AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as record,
    ):
        return [await record.getone() for _ in range(count)]


async def end_of(servers: str, topic: str) -> int:
    async with AIOKafkaConsumer(bootstrap_servers=servers) as record:
        ends: dict[Any, int] = await record.end_offsets([TopicPartition(topic, 0)])
    return sum(ends.values())


async def written(
    producer: RecordWriter, records: list[ProducerRecord]
) -> dict[ProducerRecord, Outcome]:
    """Send until all are written: a broker that has just started gives no ids yet."""
    outcomes: dict[ProducerRecord, Outcome] = {}
    async with asyncio.timeout(60):
        while remaining := [each for each in records if not isinstance(outcomes.get(each), int)]:
            outcomes |= await producer.send(remaining)
    return outcomes


async def test_what_is_sent_is_there_at_the_offset_that_is_reported(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=3)
    headers = (("a", b"1"), ("a", None))
    records = [ProducerRecord(topic, b"%d" % n, b"v%d" % n, headers) for n in range(50)]
    records += [ProducerRecord(topic, None, None), ProducerRecord(topic, None, b"x", partition=2)]
    async with open_producer(kafka.bootstrap_servers) as producer:
        outcomes = await written(producer, records[:20])
        outcomes |= await written(producer, records[20:])
    results = await read(kafka.bootstrap_servers, topic, len(records))
    reported = {(record.offset, record.key, record.value) for record in results}
    assert reported == {(outcomes[record], record.key, record.value) for record in records}
    choose = DefaultPartitioner()
    for producer in results:
        if producer.key is not None:
            assert producer.headers == headers
            assert producer.partition == choose(producer.key, [0, 1, 2], [0, 1, 2])
    assert next(record.partition for record in results if record.value == b"x") == 2


async def test_one_that_is_too_large_holds_up_no_other(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(config={"max.message.bytes": "2000"})
    values = [b"first", b"large" * 1000, b"last"]
    records = [ProducerRecord(topic, b"k", value) for value in values]
    async with open_producer(kafka.bootstrap_servers) as producer:
        await written(producer, records[:1])
        outcomes = await producer.send(records[1:])
        assert isinstance(outcomes[records[1]], RecordTooLarge)
        assert outcomes[records[2]] == 1
        many = [ProducerRecord(topic, b"k", b"x" * 100) for _ in range(100)]
        assert sorted((await producer.send(many)).values()) == [*range(2, 102)]  # type: ignore[type-var]


async def test_a_topic_that_cannot_be_is_an_error_of_its_records_alone(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    good, bad = ProducerRecord(topic, None, b"v"), ProducerRecord("no topic", None, b"v")
    beyond = ProducerRecord(topic, None, b"v", partition=7)
    async with open_producer(kafka.bootstrap_servers) as producer:
        await written(producer, [ProducerRecord(topic, None, b"first")])
        outcomes = await producer.send([bad, good, beyond])
        assert isinstance(outcomes[bad], InvalidTopic)
        assert isinstance(outcomes[beyond], UnknownTopicOrPartition)
        assert outcomes[good] == 1
        with pytest.raises(InvalidTopic):
            await producer.find_topic("no topic")
        await producer.find_topic(topic)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_record_whose_answer_is_lost_is_written_once(
    kafka_cluster: KafkaCluster, times: int
) -> None:
    """The broker recognises the batch, because it is sent again unchanged."""
    topic = await kafka_cluster.topic()
    lost = 0
    asked: set[int] = set()

    def see(frame: Frame) -> Verdict:
        if kafka_api_key(frame) == PRODUCE:
            asked.add(frame.connection)
        return Verdict.PASS

    def lose(frame: Frame) -> Verdict:
        nonlocal lost
        if frame.connection not in asked or lost == times:
            return Verdict.PASS
        lost += 1
        return Verdict.CUT

    leader = await kafka_cluster.leader(topic)
    proxy = kafka_cluster.proxies[leader.node_id]
    async with open_producer(kafka_cluster.proxied_servers) as producer:
        first = [ProducerRecord(topic, None, b"%d" % n) for n in range(3)]
        assert list((await written(producer, first)).values()) == [0, 1, 2]
        proxy.on_frame("up", see)
        proxy.on_frame("down", lose)
        asked.clear()
        second = [ProducerRecord(topic, None, b"%d" % n) for n in range(3, 5)]
        for _ in range(times):
            lost_ones = failures(await producer.send(second))
            assert [type(error) for error in lost_ones] == [ConnectionLost] * 2
        third = [*second, ProducerRecord(topic, None, b"5")]
        assert list((await producer.send(third)).values()) == [3, 4, 5]
    assert lost == times
    assert await end_of(kafka_cluster.bootstrap_servers, topic) == 6


async def test_who_gives_up_what_is_in_doubt_loses_nothing_else(
    kafka_cluster: KafkaCluster,
) -> None:
    """The next record must not be taken for the one in doubt, which has its sequence number."""
    topic = await kafka_cluster.topic()
    leader = await kafka_cluster.leader(topic)
    proxy = kafka_cluster.proxies[leader.node_id]
    async with open_producer(kafka_cluster.proxied_servers) as producer:
        await written(producer, [ProducerRecord(topic, None, b"first")])
        proxy.on_frame("down", lambda frame: Verdict.CUT)
        assert failures(await producer.send([ProducerRecord(topic, None, b"given up")]))
        proxy.heal()
        (outcome,) = (await producer.send([ProducerRecord(topic, None, b"another")])).values()
        assert isinstance(outcome, int)
    results = await read(kafka_cluster.bootstrap_servers, topic, outcome + 1)
    assert (results[0].value, results[-1].value) == (b"first", b"another")


async def test_a_producer_that_the_broker_does_not_know_begins_again(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with open_producer(kafka.bootstrap_servers) as producer:
        record = ProducerRecord(topic, None, b"v")
        await written(producer, [ProducerRecord(topic, None, b"first")])
        writer = producer._writers[TopicPartition(topic, 0)]
        assert writer._producer is not None
        writer._producer = writer._producer._replace(sequence=7)
        (error,) = failures(await producer.send([record]))
        assert isinstance(error, OutOfOrderSequence)
        assert (await producer.send([record]))[record] == 1


async def test_a_leader_that_moved_is_found(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic()
    async with open_producer(kafka_cluster.bootstrap_servers, request_timeout_ms=2_000) as producer:
        await written(producer, [ProducerRecord(topic, None, b"0")])
        leader = await kafka_cluster.leader(topic)
        await leader.stop()
        record = ProducerRecord(topic, None, b"1")
        async with asyncio.timeout(60):
            while failures(await producer.send([record])):
                await asyncio.sleep(0.1)
    values = [record.value for record in await read(kafka_cluster.bootstrap_servers, topic, 2)]
    assert values == [b"0", b"1"]


async def test_no_other_host_than_those_allowed_is_dialled(kafka: KafkaHandle) -> None:
    """The bootstrap server is allowed, and the address that it advertises is not."""
    topic = await kafka.topic()
    port = kafka.bootstrap_servers.rpartition(":")[2]
    named = f"localhost:{port}"
    record = ProducerRecord(topic, None, b"v")
    async with open_producer(named, allowed_hosts="localhost") as producer:
        (error,) = failures(await producer.send([record]))
        assert isinstance(error, HostNotAllowed), error
    assert await end_of(kafka.bootstrap_servers, topic) == 0
    async with open_producer(named, allowed_hosts="localhost,127.0.0.0/8") as producer:
        assert (await written(producer, [record]))[record] == 0
    async with open_producer(named, allowed_hosts="elsewhere.example") as producer:
        (error,) = failures(await producer.send([record]))
        assert isinstance(error, HostNotAllowed), error
