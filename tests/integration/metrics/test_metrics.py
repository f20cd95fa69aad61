"""Metrics of consumers, apps, connectors and feeders on real servers, as read by Prometheus."""

import asyncio
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter

from asyncconsumer import Record
from asyncconsumer.handlers.retry import Retry
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from asyncconsumer.types import TopicPartition
from tests.support.connector_members import connector_of
from tests.support.feeder_tables import make_feeder
from tests.support.helpers import until
from tests.support.metric_samples import scrape
from tests.support.real_apps import make_app
from tests.support.real_consumer import make_consumer, send, take


async def test_a_consumer_has_metrics_of_reads_commits_and_rebalances(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(300), 2)
    consumer = make_consumer(kafka, topic, group_id=group)
    registry = consumer.metrics.register()
    assert scrape(registry)("live", group=group) == 0
    async with consumer:
        assert len(await take(consumer, 300)) == 300
        await consumer.commit()
        read = scrape(registry)
        for partition in ("0", "1"):
            labels = {"group": group, "topic": topic, "partition": partition}
            assert read("consumed_records_total", **labels) == 150
            assert (read("consumed_bytes_total", **labels) or 0) > 150
            assert read("lag_records", **labels) == read("lag_seconds", **labels) == 0
        assert read("ready") == 1
        assert read("assigned_partitions") == 2
        assert (read("fetch_duration_seconds_count") or 0) >= 1
        assert (read("fetch_bytes_sum") or 0) > 300
        assert (read("commit_duration_seconds_count") or 0) >= 1
        assert (read("rebalance_duration_seconds_count") or 0) >= 1
        assert (read("delivery_latency_seconds_count") or 0) >= 2
        assert read("events_total", event="rebalanced") == 1
        assert (read("connections_opened_total") or 0) >= 2
        assert read("commit_failures_total") is None


async def test_lag_in_seconds_is_the_age_of_the_oldest_unread_record(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    consumer = make_consumer(kafka, topic, group_id=group)
    registry = consumer.metrics.register()
    async with consumer:
        await consumer.wait_assigned()
        await send(kafka, topic, [1, 2])
        await until(lambda: (scrape(registry)("lag_seconds") or 0) > 0.2)
        first = scrape(registry)("lag_seconds") or 0
        await until(lambda: (scrape(registry)("lag_seconds") or 0) > first)
        reader = aiter(consumer)
        await anext(reader)
        await anext(reader)
        assert scrape(registry)("lag_records") == 0
        assert (scrape(registry)("lag_seconds") or 0) > 0.2  # the second is being processed
        assert scrape(registry)("consumed_records_total") == 2
        await consumer.commit()
        assert scrape(registry)("lag_seconds") == 0


async def test_a_revoked_partition_has_no_series(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(20), 2)
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        registry = consumer.metrics.register()
        await take(consumer, 20)
        names = ("consumed_records_total", "lag_records", "lag_seconds")
        assert all(scrape(registry).label_values(name, "partition") == {"0", "1"} for name in names)
        async with make_consumer(kafka, topic, group_id=group) as other:
            await other.wait_assigned()
            await until(lambda: len(consumer.assignment) == 1)
            remaining = {str(tp.partition) for tp in consumer.assignment}
            assert all(
                scrape(registry).label_values(name, "partition") <= remaining for name in names
            )


async def test_an_app_has_metrics_of_its_handlers(kafka: KafkaHandle) -> None:
    topic, dead, group = await kafka.topic(), await kafka.topic(), kafka.group()
    app = make_app(kafka, group_id=group)

    @app.handler(topic, retry=Retry(2, delay_ms=1), dead_letter_topic=dead)
    async def bill(record: Record) -> None:
        if record.value == b"7":
            raise ValueError("no such customer")
        if record.value == b"8":
            await asyncio.sleep(0.06)

    registry = CollectorRegistry()
    own = Counter("orders_total", "Of the service itself.", registry=registry)
    own.inc()
    app.metrics.register(registry)
    async with app:
        await send(kafka, topic, range(20))
        await until(lambda: scrape(registry)("handler_dead_letters_total") == 1)
        await until(lambda: scrape(registry)("handler_finished_total") == 19)
        read = scrape(registry)
        assert read("handler_errors_total", error="ValueError") == 2
        assert read("handler_retried_total") == 1
        name = "handler_duration_seconds"
        assert read(f"{name}_count") == 21
        assert (read(f"{name}_bucket", le="0.05") or 0) < 21
        assert (read(f"{name}_sum") or 0) > 0.06
        await until(lambda: scrape(registry)("lag_seconds") == 0)
        assert read("consumed_records_total", topic=topic, partition="0") == 20
        assert read.families["orders"].samples[0].value == 1


async def test_a_record_that_a_handler_processes_counts_as_lag(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    app, proceed = make_app(kafka, group_id=group), asyncio.Event()

    @app.handler(topic)
    async def wait(record: Record) -> None:
        await proceed.wait()

    registry = app.metrics.register()
    async with app:
        await send(kafka, topic, range(3))
        await until(lambda: scrape(registry)("handler_running") == 3)
        assert scrape(registry)("lag_records") == 3
        await until(lambda: (scrape(registry)("lag_seconds") or 0) > 0.2)
        proceed.set()
        await until(lambda: scrape(registry)("lag_seconds") == 0)


async def test_metrics_can_be_read_from_another_thread(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(5))
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        registry = consumer.metrics.register()
        await take(consumer, 5)
        read = await asyncio.to_thread(scrape, registry)
        assert read("consumed_records_total") == 5
    assert (await asyncio.to_thread(scrape, registry))("live") == 0


async def test_a_failed_fetch_is_counted_by_its_error(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(5))
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        registry = consumer.metrics.register()
        await take(consumer, 5)
        consumer.seek(TopicPartition(topic, 0), 1000)
        reading = asyncio.get_running_loop().create_task(take(consumer, 1))
        await until(
            lambda: (scrape(registry)("fetch_errors_total", error="OffsetOutOfRange") or 0) > 0
        )
        assert await reading == [0]


async def test_a_connector_has_metrics_of_reads_and_commits(kafka_zk: KafkaWithZooKeeper) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    connector = connector_of(kafka_zk, group, "a")
    registry = connector.metrics.register()
    assert scrape(registry)("live") == 0
    async with connector:
        assert scrape(registry)("assigned_partitions", group=group) == 0
        streams = await connector.create_message_streams({topic: 1})
        await send(kafka_zk, topic, range(8))
        async with asyncio.timeout(60):
            for _ in range(8):
                await anext(streams[topic][0])
        read = scrape(registry)
        assert read("consumed_records_total", group=group, topic=topic, partition="0") == 8
        assert read("ready") == 1
        await connector.commit_offsets()
        assert (scrape(registry)("commit_duration_seconds_count") or 0) >= 1


async def test_a_feeder_has_metrics_of_writes_and_lag(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100))
    async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as feeder:
        registry = feeder.metrics.register()
        await feeder.caught_up()
        read = scrape(registry)
        assert read("feeder_records_total", group=group) == 100
        assert read("feeder_lag_records") == 0
        assert (read("feeder_write_duration_seconds_count") or 0) >= 1
        assert read("consumed_records_total", topic=topic) == 100
