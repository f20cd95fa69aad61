"""SimpleConsumer against real brokers, on KRaft and in ZooKeeper mode."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer import (
    EARLIEST,
    LATEST,
    ConfigError,
    SimpleConsumer,
    TopicPartition,
)
from asyncconsumer.config.choices import AutoOffsetReset, IsolationLevel
from asyncconsumer.errors import (
    LeaderNotAvailable,
    NoBrokerAnswered,
    OffsetUnavailable,
    TopicRecreated,
    UnknownTopicOrPartition,
)
from asyncconsumer.events import Skipped
from asyncconsumer.net.pool import Traffic
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle
from asyncconsumer.testing.servers import SASL_SCRAM, Kafka, ZooKeeper
from tests.support.helpers import delete_records, produce, until

VALUES = [b"%d" % number for number in range(300)]


@pytest.fixture(params=["kafka", "kafka_zk"])
def broker(request: pytest.FixtureRequest) -> KafkaHandle:
    handle: KafkaHandle = request.getfixturevalue(request.param)
    return handle


async def filled(broker: KafkaHandle, values: list[bytes] = VALUES, **options: object) -> str:
    topic = await broker.topic()
    await produce_fast(topic, values, broker.bootstrap_servers, **options)
    return topic


async def produce_fast(topic: str, values: list[bytes], servers: str, **options: object) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", **options) as producer:
        for value in values:
            await producer.send(topic, value)
        await producer.flush()


async def take(
    consumer: SimpleConsumer, topic: str, count: int, offset: int = EARLIEST
) -> list[bytes | None]:
    results = []
    async with asyncio.timeout(60):
        async for record in consumer.read(topic, 0, offset):
            results.append(record.value)
            if len(results) == count:
                break
    return results


async def test_a_partition_is_read_from_the_beginning_in_order(broker: KafkaHandle) -> None:
    topic = await filled(broker)
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        assert await take(consumer, topic, 300) == VALUES
        assert await take(consumer, topic, 10, offset=290) == VALUES[290:]


async def test_a_stream_continues_with_records_that_are_produced_later(broker: KafkaHandle) -> None:
    topic = await broker.topic()
    async with SimpleConsumer(broker.bootstrap_servers) as consumer, asyncio.TaskGroup() as group:
        reading = group.create_task(take(consumer, topic, 300))
        await produce_fast(topic, VALUES[:100], broker.bootstrap_servers)
        await produce_fast(topic, VALUES[100:], broker.bootstrap_servers)
        assert await reading == VALUES


async def test_latest_is_the_end_of_the_log_at_the_lookup(broker: KafkaHandle) -> None:
    topic = await filled(broker, VALUES[:10])
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        start = await consumer.offsets_before(topic, 0, LATEST)
        assert start == 10
        await produce(topic, [b"new"], bootstrap_servers=broker.bootstrap_servers)
        assert await take(consumer, topic, 1, offset=start) == [b"new"]


async def test_chunks_and_arrow_batches_have_the_same_records(broker: KafkaHandle) -> None:
    topic = await filled(broker)
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        chunked = [
            record.value
            async for chunk in consumer.read(topic, 0, end=LATEST).chunks()
            for record in chunk
        ]
        assert chunked == VALUES
        for copy in (True, False):
            columns = [
                batch.column("value").to_pylist()
                async for batch in consumer.read(topic, 0, end=LATEST).arrow(copy=copy)
            ]
            assert [value for column in columns for value in column] == VALUES


async def test_a_stream_ends_at_its_end_offset(broker: KafkaHandle) -> None:
    topic = await filled(broker)
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        read = [record.offset async for record in consumer.read(topic, 0, 5, end=123)]
    assert read == list(range(5, 123))


async def test_several_partitions_are_fetched_with_one_call(broker: KafkaHandle) -> None:
    name, other = await filled(broker, VALUES[:5]), await filled(broker, VALUES[5:9])
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        result = await consumer.fetch({TopicPartition(name, 0): 2, TopicPartition(other, 0): 0})
        first, second = result[TopicPartition(name, 0)], result[TopicPartition(other, 0)]
        assert [record.value for record in first.records] == VALUES[2:5]
        assert [record.value for record in second.records] == VALUES[5:9]
        assert (first.next_offset, first.high_watermark, first.error) == (5, 5, None)


async def test_fetch_returns_the_error_of_one_partition_as_a_value(
    broker: KafkaHandle,
) -> None:
    topic, other = await filled(broker, VALUES[:5]), await filled(broker, VALUES[:5])
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        result = await consumer.fetch({TopicPartition(topic, 0): 99, TopicPartition(other, 0): 0})
    refused, good = result[TopicPartition(topic, 0)], result[TopicPartition(other, 0)]
    assert refused.error is not None
    assert refused.error.code == 1
    assert list(refused.records) == []
    assert len(list(good.records)) == 5


async def test_a_long_poll_of_one_stream_does_not_delay_another(broker: KafkaHandle) -> None:
    quiet, busy = await broker.topic(), await filled(broker)
    async with (
        SimpleConsumer(broker.bootstrap_servers, fetch_max_wait_ms=20_000) as consumer,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(take(consumer, quiet, 1))
        async with asyncio.timeout(10):
            for _ in range(3):
                assert await take(consumer, busy, 300) == VALUES
        waiting.cancel()


async def test_offsets_are_looked_up_by_time(broker: KafkaHandle) -> None:
    topic = await broker.topic(config={"retention.ms": "-1"})  # the records are old
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for second in range(10):
            await producer.send_and_wait(
                topic, b"x", timestamp_ms=1_700_000_000_007 + second * 1000
            )
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        moment = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=7)
        assert await consumer.offsets_before(topic, 0, moment + timedelta(seconds=3)) == 3
        assert await consumer.offsets_before(topic, 0, moment + timedelta(seconds=2.5)) == 3
        just_after = moment + timedelta(seconds=3, milliseconds=1)
        assert await consumer.offsets_before(topic, 0, just_after) == 4
        assert await consumer.offsets_before(topic, 0, moment - timedelta(days=1)) == 0
        assert await consumer.offsets_before(topic, 0, moment + timedelta(days=1)) == 10
        assert await consumer.offsets_before(topic, 0, EARLIEST) == 0
        with pytest.raises(ConfigError, match="has no time zone"):
            await consumer.offsets_before(topic, 0, datetime.now())  # noqa: DTZ005 - it has no time zone


async def test_offsets_are_committed_and_fetched_without_joining(broker: KafkaHandle) -> None:
    topic, group = await broker.topic(partitions=2), broker.group()
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        assert await consumer.fetch_offsets(group, [tp, other]) == {tp: None, other: None}
        await consumer.commit_offsets(group, {tp: 42})
        assert await consumer.fetch_offsets(group, [tp, other]) == {tp: 42, other: None}
        with pytest.raises(ConfigError, match="the name of the group is empty"):
            await consumer.commit_offsets("", {tp: 1})


@pytest.mark.parametrize(("reset", "first"), [("earliest", 50), ("latest", 100)])
async def test_deleted_offsets_are_skipped_by_policy_and_reported(
    broker: KafkaHandle, reset: AutoOffsetReset, first: int
) -> None:
    topic = await filled(broker, VALUES[:100])
    await delete_records(broker, topic, 0, before=50)
    reported: list[Skipped] = []
    async with SimpleConsumer(
        broker.bootstrap_servers, auto_offset_reset=reset, on_skip=reported.append
    ) as consumer:
        stream = consumer.read(topic, 0, 7)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(anext(aiter(stream)))
            await until(lambda: bool(reported))
            await produce(topic, [b"new"], bootstrap_servers=broker.bootstrap_servers)
            async with asyncio.timeout(30):
                record = await reading
    assert record.offset == first
    assert reported == [Skipped(TopicPartition(topic, 0), 7, first)]


async def test_an_offset_outside_of_the_log_raises_without_a_policy(broker: KafkaHandle) -> None:
    topic = await filled(broker, VALUES[:100])
    await delete_records(broker, topic, 0, before=50)
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        with pytest.raises(OffsetUnavailable, match="43 offsets before 50 are gone") as caught:
            await take(consumer, topic, 1, offset=7)
        assert (caught.value.earliest, caught.value.latest) == (50, 100)
        with pytest.raises(OffsetUnavailable, match="the log ends at 100"):
            await take(consumer, topic, 1, offset=101)


async def test_the_error_for_a_missing_topic_names_it(broker: KafkaHandle) -> None:
    name = await broker.topic() + "-missing"
    async with SimpleConsumer(broker.bootstrap_servers, retry_timeout_ms=500) as consumer:
        with pytest.raises(UnknownTopicOrPartition, match=name):
            await take(consumer, name, 1)
        with pytest.raises(UnknownTopicOrPartition, match=name):
            await consumer.find_leader(name, 0)


async def test_cancelling_the_wait_for_a_record_loses_none(broker: KafkaHandle) -> None:
    topic = await broker.topic()
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        records = aiter(consumer.read(topic, 0))
        results: list[bytes | None] = []
        for number in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(records)
            await produce(topic, [b"%d" % number], bootstrap_servers=broker.bootstrap_servers)
            async with asyncio.timeout(30):
                results.append((await anext(records)).value)
    assert results == [b"%d" % number for number in range(20)]


async def test_read_committed_leaves_out_aborted_transactions(broker: KafkaHandle) -> None:
    topic = await broker.topic()
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=broker.group()
    ) as producer:
        for number, keep in enumerate([True, False, True, False]):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number)
            await (producer.commit_transaction if keep else producer.abort_transaction)()
    levels: dict[IsolationLevel, list[bytes]] = {
        "read_committed": [b"0", b"2"],
        "read_uncommitted": [b"0", b"1", b"2", b"3"],
    }
    for level, expected in levels.items():
        async with SimpleConsumer(broker.bootstrap_servers, isolation_level=level) as consumer:
            stream = consumer.read(topic, 0, end=LATEST)
            assert [record.value async for record in stream] == expected


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_codec_is_decompressed(kafka: KafkaHandle, codec: str) -> None:
    topic = await filled(kafka, compression_type=codec)
    async with SimpleConsumer(kafka.bootstrap_servers) as consumer:
        assert await take(consumer, topic, 300) == VALUES


async def test_a_stream_survives_a_killed_leader(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic()
    servers = kafka_cluster.bootstrap_servers
    async with SimpleConsumer(servers) as consumer:
        records = aiter(consumer.read(topic, 0))
        await produce(topic, VALUES[:100], bootstrap_servers=servers)
        results = [(await anext(records)).value for _ in range(50)]

        leader = await kafka_cluster.leader(topic)
        await leader.kill()
        async with asyncio.TaskGroup() as group, asyncio.timeout(90):
            group.create_task(produce(topic, VALUES[100:], bootstrap_servers=servers))
            while len(results) < 300:
                results.append((await anext(records)).value)
    assert results == VALUES


async def test_find_new_leader_returns_another_broker(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic()
    async with SimpleConsumer(kafka_cluster.bootstrap_servers) as consumer:
        old = (await consumer.find_leader(topic, 0)).broker.node_id
        await kafka_cluster.brokers[old].stop()
        new = await consumer.find_new_leader(topic, 0, old)
    assert new.broker.node_id != old


async def test_find_new_leader_raises_if_no_other_leader_is_elected(
    kafka_cluster: KafkaCluster,
) -> None:
    topic = await kafka_cluster.topic(replication_factor=1)
    async with SimpleConsumer(kafka_cluster.bootstrap_servers) as consumer:
        old = (await consumer.find_leader(topic, 0)).broker.node_id
        await kafka_cluster.brokers[old].stop()
        with pytest.raises(LeaderNotAvailable):
            await consumer.find_new_leader(topic, 0, old)


@pytest.mark.parametrize("fault", ["cut", "reset"])
async def test_a_fetch_is_repeated_after_its_connection_broke(
    kafka_cluster: KafkaCluster, fault: str
) -> None:
    topic = await kafka_cluster.topic()
    await produce_fast(topic, VALUES, kafka_cluster.bootstrap_servers)
    async with SimpleConsumer(kafka_cluster.proxied_servers) as consumer:
        tp = TopicPartition(topic, 0)
        assert (await consumer.fetch({tp: 0}))[tp].high_watermark == 300
        for proxy in kafka_cluster.proxies.values():
            getattr(proxy, fault)()
        assert (await consumer.fetch({tp: 5}))[tp].high_watermark == 300
        assert await take(consumer, topic, 300) == VALUES


@pytest.mark.parametrize("version", ["4.3.1", "3.9.2"])
async def test_a_stream_over_tls_with_a_login_survives_a_killed_leader(version: str) -> None:
    async with AsyncExitStack() as stack:
        zookeeper = None
        if version.startswith("3."):
            zookeeper = (await stack.enter_async_context(ZooKeeper())).connect
        kafka = await stack.enter_async_context(
            Kafka(version, brokers=3, listeners=[SASL_SCRAM], zookeeper=zookeeper)
        )
        await kafka.admin.create_topic("orders", replication_factor=3)
        settings: dict[str, Any] = kafka.client_settings(SASL_SCRAM)
        await produce_fast("orders", VALUES[:200], kafka.bootstrap_servers)
        consumer = await stack.enter_async_context(SimpleConsumer(**settings))
        records = aiter(consumer.read("orders", 0, end=300))
        results = [(await anext(records)).value for _ in range(100)]
        await kafka.brokers[await kafka.admin.leader("orders", 0)].kill()
        async with asyncio.timeout(90), asyncio.TaskGroup() as group:
            group.create_task(produce("orders", VALUES[200:], **settings))
            results += [record.value async for record in records]
    assert results == VALUES


async def test_partitions_returns_the_partitions_of_a_topic(broker: KafkaHandle) -> None:
    topic = await broker.topic(partitions=3)
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        assert await consumer.partitions(topic) == [0, 1, 2]
        with pytest.raises(UnknownTopicOrPartition):
            await consumer.partitions(topic + "-missing")


async def test_a_topic_re_created_while_it_is_read_raises(broker: KafkaHandle) -> None:
    topic = await filled(broker, VALUES[:50])
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        records = aiter(consumer.read(topic, 0))
        for _ in range(50):
            await anext(records)
        await broker.admin.delete_topic(topic)
        await broker.admin.create_topic(topic)
        await produce_fast(topic, VALUES[:100], broker.bootstrap_servers)
        async with asyncio.timeout(30):
            with pytest.raises(TopicRecreated, match="up to offset 50"):
                await anext(records)


async def test_a_re_created_topic_is_read_from_its_beginning_by_policy(broker: KafkaHandle) -> None:
    topic = await filled(broker, VALUES[:50])
    reported: list[Skipped] = []
    async with SimpleConsumer(
        broker.bootstrap_servers, auto_offset_reset="earliest", on_skip=reported.append
    ) as consumer:
        records = aiter(consumer.read(topic, 0))
        for _ in range(50):
            await anext(records)
        await broker.admin.delete_topic(topic)
        await broker.admin.create_topic(topic)
        await produce_fast(topic, VALUES[:100], broker.bootstrap_servers)
        async with asyncio.timeout(30):
            assert [(await anext(records)).value for _ in range(100)] == VALUES[:100]
    assert reported == [Skipped(TopicPartition(topic, 0), 50, 0)]


async def test_a_stream_with_a_rack_reads_from_the_replica_in_that_rack() -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    async with Kafka(brokers=2, racks=True, config={"replica.selector.class": selector}) as kafka:
        await kafka.admin.create_topic("orders", replication_factor=2)
        await kafka.admin.move_leader("orders", 0, to=1)
        await produce_fast("orders", VALUES, kafka.bootstrap_servers)
        async with SimpleConsumer(kafka.bootstrap_servers, client_rack="rack-2") as consumer:
            records = aiter(consumer.read("orders", 0))
            assert [(await anext(records)).value for _ in range(300)] == VALUES
            used = consumer._session.brokers._opened
            follower = kafka.brokers[2].address()
            assert follower in {str(way.address) for way in used if way.traffic is Traffic.FETCH}


async def test_fetch_returns_an_error_for_a_missing_partition(
    broker: KafkaHandle,
) -> None:
    topic = await filled(broker, VALUES[:5])
    good, missing = TopicPartition(topic, 0), TopicPartition(topic, 9)
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        result = await consumer.fetch({good: 0, missing: 0})
        assert len(list(result[good].records)) == 5
        assert isinstance(result[missing].error, UnknownTopicOrPartition)
        with pytest.raises(ConfigError, match="Pass an offset from 0 on"):
            await consumer.fetch({good: EARLIEST})
        with pytest.raises(ConfigError, match="Commit the offset of the next record"):
            await consumer.commit_offsets("g", {good: -5})


async def test_a_closed_stream_yields_no_more_records(broker: KafkaHandle) -> None:
    topic = await filled(broker, VALUES[:5])
    async with SimpleConsumer(broker.bootstrap_servers) as consumer:
        stream = consumer.read(topic, 0)
        results = [(await anext(aiter(stream))).value for _ in range(5)]
        stream.close()
        assert [record async for record in stream] == []
    assert results == VALUES[:5]


async def test_find_new_leader_tries_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = SimpleConsumer("127.0.0.1:9")
    requested = []

    async def find(topic: str, partition: int) -> None:
        requested.append((topic, partition))
        raise NoBrokerAnswered(())

    monkeypatch.setattr(consumer, "find_leader", find)
    with pytest.raises(NoBrokerAnswered):
        await consumer.find_new_leader("orders", 0, 1)
    assert requested == [("orders", 0)] * 3


@pytest.mark.fast
def test_errors_name_the_wrong_options_and_arguments() -> None:
    with pytest.raises(ConfigError, match=r"'isolation_levle'. Did you mean `isolation_level`\?"):
        SimpleConsumer("localhost:9092", isolation_levle="read_committed")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="`auto_offset_reset` must be one of earliest"):
        SimpleConsumer("localhost:9092", auto_offset_reset="beginning")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"`fetch_min_bytes` \(9\) must not be more than"):
        SimpleConsumer("localhost:9092", fetch_min_bytes=9, fetch_max_bytes=5)
    for options, problem in (
        ({"retry_timeout_ms": "5"}, "`retry_timeout_ms` must be a whole number"),
        ({"check_crcs": "no"}, "`check_crcs` must be True or False"),
        ({"on_skip": 3}, "`on_skip` must be a function"),
        ({"max_partition_fetch_bytes": 2**33}, "to 2147483647, got 8589934592"),
        (
            {"fetch_max_wait_ms": 9, "request_timeout_ms": 9},
            "must be less than `request_timeout_ms`",
        ),
        ({"max_frame_bytes": 4096}, "must not be more than `max_frame_bytes`"),
    ):
        with pytest.raises(ConfigError, match=problem):
            SimpleConsumer("localhost:9092", **options)
    consumer = SimpleConsumer("localhost:9092")
    with pytest.raises(ConfigError, match="Pass an offset from 0 on, EARLIEST or LATEST"):
        consumer.read("orders", 0, -3)
