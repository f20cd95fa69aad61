"""Feeders of a real broker into a landing folder: each record exactly once."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.errors import SinkFailed, SinkOffsetConflict
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from tests.integration.consumer.test_zookeeper_group import in_zookeeper
from tests.spark.feeder.test_feeder_errors import committed, observed
from tests.support.feeder_tables import (
    Gate,
    are_contiguous,
    landed,
    make_feeder,
    numbers,
    ranges,
    reader,
)
from tests.support.helpers import until
from tests.support.real_consumer import partitions, send


async def test_each_record_is_written_once_and_committed(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(500), 3)
    async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as feeder:
        await feeder.caught_up()
        stats = feeder.stats()
    assert numbers(landed(tmp_path)) == list(range(500))
    assert all(are_contiguous(results) for results in ranges(tmp_path).values())
    assert (stats.records, stats.lag, stats.in_flight, stats.refused) == (500, 0, 0, 0)
    assert stats.batches >= 10  # 50 records at the most
    assert await committed(kafka, topic, group, 3) == [167, 167, 166]


async def test_a_feeder_starts_at_the_sinks_offset_and_not_at_the_commit(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100))
    async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as feeder:
        await feeder.caught_up()
    async with reader(kafka, group=group) as another:  # as if the commit was lost
        await another.assign(partitions(topic, 0))
        await another.wait_assigned()
        assert await another.commit({TopicPartition(topic, 0): 10})
    await send(kafka, topic, range(100, 150))
    async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as feeder:
        await feeder.caught_up()
    assert numbers(landed(tmp_path)) == list(range(150))


async def test_the_start_offset_is_committed_before_the_first_write(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))

    def from_the_end() -> SparkFeeder:
        consumer = reader(kafka, topic, group=group, auto_offset_reset="latest")
        return SparkFeeder(consumer, LandingFolder(tmp_path), max_wait_ms=20)

    async with from_the_end():
        await until(lambda: observed(kafka, topic, group, [10]))
    await send(kafka, topic, range(10, 30))
    async with from_the_end() as feeder:
        await until(lambda: feeder.stats().records == 20)
    assert numbers(landed(tmp_path)) == list(range(10, 30))


async def test_an_open_consumer_stays_open_after_its_feeder(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(100), 2)
    async with reader(kafka, topic, group=group) as consumer:
        await consumer.wait_assigned()
        async with SparkFeeder(consumer, LandingFolder(tmp_path), max_wait_ms=20) as feeder:
            await feeder.caught_up()
        assert consumer.is_open
        assert await consumer.committed() == dict.fromkeys(partitions(topic, 0, 1), 50)
    assert numbers(landed(tmp_path)) == list(range(100))


async def test_a_revocation_waits_until_the_write_in_flight_is_finished(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(400), 2)
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    async with make_feeder(kafka, topic, group, gate) as feeder:
        await until(lambda: gate.waiting > 0)
        async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as other:
            await until(lambda: len(feeder._state.feeds) < 2)  # the revocation waits for the write
            assert not other._state.feeds
            gate.unlock()
            await until(lambda: len(feeder._state.feeds) == len(other._state.feeds) == 1)
            for each in (feeder, other):
                await each.caught_up()
            assert feeder.stats().refused == other.stats().refused == 0
    assert numbers(landed(tmp_path)) == list(range(400))
    assert all(are_contiguous(results) for results in ranges(tmp_path).values())


async def test_a_write_that_outlasts_its_revocation_is_refused(
    kafka: KafkaHandle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(200), 2)
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    slow = reader(kafka, topic, group=group, listener_timeout_ms=2_000)
    async with SparkFeeder(slow, gate, max_records=60, max_wait_ms=50) as feeder:
        await until(lambda: gate.waiting > 0)
        async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as other:
            await until(lambda: other.stats().records == 100)  # all records of its partition
            gate.unlock()
            await until(lambda: feeder.stats().in_flight == 0)
            await until(lambda: len(landed(tmp_path)) == 200)
    assert "before the revocation, so they are abandoned" in caplog.text
    assert numbers(landed(tmp_path)) == list(range(200))
    assert all(are_contiguous(results) for results in ranges(tmp_path).values())


async def test_a_prepared_batch_of_a_lost_partition_is_not_written(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(200))
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    async with make_feeder(kafka, topic, group, gate, max_in_flight=2) as feeder:
        await until(lambda: gate.waiting > 0 and feeder.stats().in_flight == 2)
        feeder._state.on_partitions_lost(partitions(topic, 0))
        await until(lambda: feeder.stats().abandoned == 1)  # without waiting for the write
        assert feeder.stats().in_flight == 0
        gate.unlock()  # the first write was already running
    assert numbers(landed(tmp_path)) == list(range(50))


async def test_a_refused_feeder_continues_at_the_sinks_offset(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, groups = await kafka.topic(), (kafka.group(), kafka.group())
    await send(kafka, topic, range(300))
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    async with make_feeder(kafka, topic, groups[0], gate, max_records=40) as late:
        await until(lambda: gate.waiting > 0)
        async with make_feeder(kafka, topic, groups[1], LandingFolder(tmp_path)) as other:
            await until(lambda: other.stats().records == 300)
        gate.unlock()
        await until(lambda: late.stats().refused == 1)
        await send(kafka, topic, range(300, 350))
        await until(lambda: late.stats().records == 50)
    assert numbers(landed(tmp_path)) == list(range(350))


async def test_a_failed_write_is_repeated(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100))
    gate, failures = Gate(tmp_path, asyncio.get_running_loop()), [1, 2, 3]

    def full() -> None:
        if failures:
            failures.pop()
            raise OSError(28, "No space left on device")

    gate.trouble = full
    async with make_feeder(kafka, topic, group, gate) as feeder:
        await until(lambda: feeder.stats().records == 100)
        assert feeder.stats().retries == 3
    assert numbers(landed(tmp_path)) == list(range(100))


async def test_a_sink_that_keeps_failing_ends_the_feeder(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(300))
    gate, remaining = Gate(tmp_path, asyncio.get_running_loop()), [1, 2]

    def full() -> None:
        if not remaining:
            raise OSError(28, "No space left on device")
        remaining.pop()

    gate.trouble = full
    with pytest.raises(SinkFailed, match=r"write .* 2 times.*No space left") as caught:
        async with make_feeder(kafka, topic, group, gate, retries=1) as feeder:
            await feeder.run()
    assert isinstance(caught.value.__cause__, OSError)
    assert numbers(landed(tmp_path)) == list(range(100))
    assert await committed(kafka, topic, group) == [100]


async def test_a_failure_is_raised_at_the_end_of_the_block(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    gate = Gate(tmp_path, asyncio.get_running_loop())

    def broken() -> None:
        raise OSError("broken")

    gate.trouble = broken
    with pytest.raises(SinkFailed, match="broken"):
        async with make_feeder(kafka, topic, group, gate, retries=0) as feeder:
            await until(lambda: feeder.stats().in_flight == 0 and feeder._failure.ended.is_set())


async def test_a_slow_sink_stops_fetching_and_does_not_block_the_loop(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(5000))
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    consumer = reader(kafka, topic, group=group, max_buffered_bytes=2**16)
    async with SparkFeeder(consumer, gate, max_records=100, max_in_flight=3) as feeder:
        await until(lambda: gate.waiting > 0 and feeder.stats().in_flight == 3)
        seen = []
        for _ in range(20):  # the limit is not exceeded later
            await asyncio.sleep(0.01)
            seen.append(feeder.stats())
        assert {stats.in_flight for stats in seen} == {3}
        place = TopicPartition(topic, 0)
        assert consumer.progress()[place].fetched < 5000  # the fetchers wait, too
        feed = feeder._state.feeds[place]
        assert feed.position is not None
        assert feed.position <= 400  # three batches in flight, and a full one
        gate.unlock()
        await feeder.caught_up()
    assert numbers(landed(tmp_path)) == list(range(5000))


async def test_closing_writes_collected_records(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100))
    async with make_feeder(
        kafka, topic, group, LandingFolder(tmp_path), max_wait_ms=600_000
    ) as feeder:
        await until(lambda: feeder.stats().records == 100 or feeder._collector.size > 0)
        await send(kafka, topic, range(100, 120))
        feed = feeder._state.feeds[TopicPartition(topic, 0)]
        await until(lambda: feed.position == 120)
        assert feeder.stats().records == 100
    assert numbers(landed(tmp_path)) == list(range(120))
    assert await committed(kafka, topic, group) == [120]


async def test_records_not_written_within_the_grace_are_written_by_the_next(
    kafka: KafkaHandle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(200))
    gate = Gate(tmp_path, asyncio.get_running_loop())
    async with make_feeder(kafka, topic, group, gate, grace_ms=100) as feeder:
        await feeder.caught_up()
        gate.shut()
        await send(kafka, topic, range(200, 400))
        await until(lambda: gate.waiting > 0)
        asyncio.get_running_loop().call_later(0.3, gate.unlock)
    assert "within grace_ms" in caplog.text
    async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as feeder:
        await feeder.caught_up()
    assert numbers(landed(tmp_path)) == list(range(400))


async def test_a_sink_offset_after_the_end_of_the_log_is_reported(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    sink = LandingFolder(tmp_path)
    await send(kafka, topic, range(20))
    async with make_feeder(kafka, topic, group, sink) as feeder:
        await feeder.caught_up()
    place = TopicPartition(topic, 0)
    (head,) = (tmp_path / "_claims" / f"{topic}-0").iterdir()
    head.rename(
        head.with_name(f"{20:020d}-{500:020d}-{'0' * 32}")
    )  # as if the log was longer before
    with pytest.raises(SinkOffsetConflict, match=r"up to offset 500.*with offset 0") as caught:
        async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as feeder:
            await feeder.run()
    assert caught.value.partition == place


async def test_columns_and_transform_change_the_written_table(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(30))
    seen: list[pa.Table] = []

    def only_even(table: pa.Table) -> pa.Table:
        even = [int(value.as_py()) % 2 == 0 for value in table["value"]]
        return table.filter(pa.array(even))

    async def keep(table: pa.Table, batch: FeedBatch) -> None:
        seen.append(table)

    async with make_feeder(
        kafka, topic, group, write=keep, columns=["value", "key"], transform=only_even
    ) as feeder:
        await feeder.caught_up()
        assert feeder.stats().records == 30
    assert seen[0].column_names == ["value", "key"]
    assert sorted(int(v.as_py()) for t in seen for v in t["value"]) == list(range(0, 30, 2))


async def test_two_members_of_a_group_in_zookeeper_feed_one_folder(
    kafka_zk: KafkaWithZooKeeper, tmp_path: Path
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    await send(kafka_zk, topic, range(400), 4)

    def make() -> SparkFeeder:
        consumer: Consumer[Any, Any] = in_zookeeper(
            kafka_zk, topic, group_id=group, commit_policy="manual"
        )
        return SparkFeeder(consumer, LandingFolder(tmp_path), max_records=30, max_wait_ms=20)

    async with make() as feeder:
        await until(lambda: feeder.stats().records > 0)
        async with make() as other:
            await until(lambda: len(feeder._state.feeds) == len(other._state.feeds) == 2)
            await send(kafka_zk, topic, range(400, 800), 4)
            await until(lambda: feeder.stats().records + other.stats().records == 800)
            for each in (feeder, other):
                await each.caught_up()
            assert other.stats().records > 0
    assert numbers(landed(tmp_path)) == list(range(800))
    assert all(are_contiguous(results) for results in ranges(tmp_path).values())
    async with in_zookeeper(kafka_zk, topic, group_id=group) as reader_of_all:
        reported = await reader_of_all.committed(partitions(topic, 0, 1, 2, 3))
    assert set(reported.values()) == {200}


# --- functions of users -----------------------------------------------------------------------


async def test_a_batch_with_a_write_intent_is_repeated_with_the_same_id(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(70))
    tried: list[FeedBatch] = []

    async def die(table: pa.Table, batch: FeedBatch) -> None:
        tried.append(batch)
        raise RuntimeError("the process dies")

    with pytest.raises(SinkFailed, match="dies"):
        async with make_feeder(kafka, topic, group, write=die, retries=0, max_records=70) as feeder:
            await feeder.run()
    await send(kafka, topic, range(70, 200))
    again: list[FeedBatch] = []

    def keep(table: pa.Table, batch: FeedBatch) -> None:
        again.append(batch)

    async with make_feeder(kafka, topic, group, write=keep, max_records=30) as feeder:
        await feeder.caught_up()
    assert again[0].id == tried[0].id
    assert again[0].txn_app_id == tried[0].txn_app_id
    assert again[0].txn_app_id.startswith(f"asyncconsumer:{topic}:0:")
    assert again[0].txn_version == 70
    assert [int(v.as_py()) for b in again for v in b.table["value"]] == list(range(200))
    assert await committed(kafka, topic, group) == [200]


async def test_no_batch_is_written_after_a_failed_one(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(200))
    seen: list[int] = []

    def write_or_not(table: pa.Table, batch: FeedBatch) -> None:
        if batch.txn_version == 100:
            raise RuntimeError("not this one")
        seen.append(batch.txn_version)

    with pytest.raises(SinkFailed, match="RuntimeError: not this one"):
        async with make_feeder(kafka, topic, group, write=write_or_not, retries=0) as feeder:
            await feeder.run()
    assert seen == [50]
    assert await committed(kafka, topic, group) == [50]


async def test_a_batch_for_a_function_has_one_partition(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(300), 3)
    seen: list[FeedBatch] = []
    async with make_feeder(
        kafka, topic, group, write=lambda table, batch: seen.append(batch)
    ) as feeder:
        await feeder.caught_up()
    assert {len(batch.parts) for batch in seen} == {1}
    assert sum(batch.rows for batch in seen) == 300


@pytest.mark.parametrize("limit", [4, 1000])
async def test_run_writes_all_records_before_it_returns_on_idle_timeout(
    kafka: KafkaHandle, tmp_path: Path, limit: int
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(20))
    consumer = reader(kafka, topic, group=group, idle_timeout_ms=500)
    async with SparkFeeder(consumer, LandingFolder(tmp_path), max_records=limit) as feeder:
        await feeder.run()
        assert numbers(landed(tmp_path)) == list(range(20))
    assert numbers(landed(tmp_path)) == list(range(20))
