"""Feeders of a real broker into a landing folder: once each, whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.errors import ConfigError, ConsumerTimeout, SinkFailed, SinkOffsetConflict
from asyncconsumer.events import EventStream
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from tests.consumer.real import partitions, send
from tests.consumer.test_in_zookeeper import in_zookeeper
from tests.helpers import until
from tests.spark.lake import Gate, batch, feeder, in_a_row, landed, numbers, ranges, reader


async def committed(kafka: KafkaHandle, topic: str, group: str, count: int = 1) -> list[int | None]:
    """What the group has, by an outsider's question."""
    places = partitions(topic, *range(count))
    async with reader(kafka, group=group) as one:
        await one.assign(places)
        found = await one.committed(places)
    return [found[place] for place in places]


async def told(kafka: KafkaHandle, topic: str, group: str, offsets: list[int | None]) -> bool:
    return await committed(kafka, topic, group, len(offsets)) == offsets


async def test_each_record_is_landed_once_and_the_group_is_told(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(500), 3)
    async with feeder(kafka, topic, group, LandingFolder(tmp_path)) as one:
        await one.caught_up()
        stats = one.stats()
    assert numbers(landed(tmp_path)) == list(range(500))
    assert all(in_a_row(found) for found in ranges(tmp_path).values())
    assert (stats.records, stats.lag, stats.in_flight, stats.refused) == (500, 0, 0, 0)
    assert stats.batches >= 10  # 50 records at the most
    assert await committed(kafka, topic, group, 3) == [167, 167, 166]


async def test_reading_begins_behind_what_the_sink_has_whatever_the_group_says(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100))
    async with feeder(kafka, topic, group, LandingFolder(tmp_path)) as one:
        await one.caught_up()
    async with reader(kafka, group=group) as another:  # as if the commit had never come
        await another.assign(partitions(topic, 0))
        await another.wait_assigned()
        assert await another.commit({TopicPartition(topic, 0): 10})
    await send(kafka, topic, range(100, 150))
    async with feeder(kafka, topic, group, LandingFolder(tmp_path)) as one:
        await one.caught_up()
    assert numbers(landed(tmp_path)) == list(range(150))


async def test_where_it_began_is_remembered_before_anything_is_written(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))

    def from_the_end() -> SparkFeeder:
        consumer = reader(kafka, topic, group=group, auto_offset_reset="latest")
        return SparkFeeder(consumer, LandingFolder(tmp_path), max_wait_ms=20)

    async with from_the_end():
        await until(lambda: told(kafka, topic, group, [10]))
    await send(kafka, topic, range(10, 30))
    async with from_the_end() as one:
        await until(lambda: one.stats().records == 20)
    assert numbers(landed(tmp_path)) == list(range(10, 30))


async def test_a_consumer_that_is_open_already_is_left_open(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(100), 2)
    async with reader(kafka, topic, group=group) as consumer:
        await consumer.wait_assigned()
        async with SparkFeeder(consumer, LandingFolder(tmp_path), max_wait_ms=20) as one:
            await one.caught_up()
        assert consumer.is_open
        assert await consumer.committed() == dict.fromkeys(partitions(topic, 0, 1), 50)
    assert numbers(landed(tmp_path)) == list(range(100))


async def test_what_is_being_written_is_finished_before_a_partition_goes(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(400), 2)
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    async with feeder(kafka, topic, group, gate) as one:
        await until(lambda: gate.waiting > 0)
        async with feeder(kafka, topic, group, LandingFolder(tmp_path)) as other:
            await until(lambda: len(one._ours.lanes) < 2)  # it is asked to let go, and waits
            assert not other._ours.lanes
            gate.unlock()
            await until(lambda: len(one._ours.lanes) == len(other._ours.lanes) == 1)
            for each in (one, other):
                await each.caught_up()
            assert one.stats().refused == other.stats().refused == 0
    assert numbers(landed(tmp_path)) == list(range(400))
    assert all(in_a_row(found) for found in ranges(tmp_path).values())


async def test_a_write_that_takes_too_long_keeps_no_partition_and_is_refused(
    kafka: KafkaHandle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(200), 2)
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    slow = reader(kafka, topic, group=group, listener_timeout_ms=2_000)
    async with SparkFeeder(slow, gate, max_records=60, max_wait_ms=50) as one:
        await until(lambda: gate.waiting > 0)
        async with feeder(kafka, topic, group, LandingFolder(tmp_path)) as other:
            await until(lambda: other.stats().records == 100)  # it has one of the two
            gate.unlock()
            await until(lambda: one.stats().in_flight == 0)
            await until(lambda: len(landed(tmp_path)) == 200)
    assert "is given up, for its partition is taken away" in caplog.text
    assert numbers(landed(tmp_path)) == list(range(200))
    assert all(in_a_row(found) for found in ranges(tmp_path).values())


async def test_a_batch_of_a_partition_that_was_lost_is_not_written(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(200))
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    async with feeder(kafka, topic, group, gate, max_in_flight=2) as one:
        await until(lambda: gate.waiting > 0 and one.stats().in_flight == 2)
        one._ours.on_partitions_lost(partitions(topic, 0))
        await until(lambda: one.stats().abandoned == 1)  # it waits for nobody
        assert one.stats().in_flight == 0
        gate.unlock()  # the other one could not be called back
    assert numbers(landed(tmp_path)) == list(range(50))


async def test_whoever_was_overtaken_is_refused_and_goes_on_behind_the_other(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, groups = await kafka.topic(), (kafka.group(), kafka.group())
    await send(kafka, topic, range(300))
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    async with feeder(kafka, topic, groups[0], gate, max_records=40) as late:
        await until(lambda: gate.waiting > 0)
        async with feeder(kafka, topic, groups[1], LandingFolder(tmp_path)) as other:
            await until(lambda: other.stats().records == 300)
        gate.unlock()
        await until(lambda: late.stats().refused == 1)
        await send(kafka, topic, range(300, 350))
        await until(lambda: late.stats().records == 50)
    assert numbers(landed(tmp_path)) == list(range(350))


async def test_a_failing_sink_is_tried_again(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100))
    gate, failures = Gate(tmp_path, asyncio.get_running_loop()), [1, 2, 3]

    def full() -> None:
        if failures:
            failures.pop()
            raise OSError(28, "No space left on device")

    gate.trouble = full
    async with feeder(kafka, topic, group, gate) as one:
        await until(lambda: one.stats().records == 100)
        assert one.stats().retries == 3
    assert numbers(landed(tmp_path)) == list(range(100))


async def test_a_sink_that_keeps_failing_is_told_of_and_nothing_behind_it_is_written(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(300))
    gate, left = Gate(tmp_path, asyncio.get_running_loop()), [1, 2]

    def full() -> None:
        if not left:
            raise OSError(28, "No space left on device")
        left.pop()

    gate.trouble = full
    with pytest.raises(SinkFailed, match=r"write .* 2 times.*No space left") as caught:
        async with feeder(kafka, topic, group, gate, retries=1) as one:
            await one.run()
    assert isinstance(caught.value.__cause__, OSError)
    assert numbers(landed(tmp_path)) == list(range(100))
    assert await committed(kafka, topic, group) == [100]


async def test_what_nobody_asked_about_is_raised_at_the_end(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    gate = Gate(tmp_path, asyncio.get_running_loop())

    def broken() -> None:
        raise OSError("broken")

    gate.trouble = broken
    with pytest.raises(SinkFailed, match="broken"):
        async with feeder(kafka, topic, group, gate, retries=0) as one:
            await until(lambda: one.stats().in_flight == 0 and one._ending.there.is_set())


async def test_a_slow_sink_holds_up_reading_and_not_the_loop(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(5000))
    gate = Gate(tmp_path, asyncio.get_running_loop())
    gate.shut()
    consumer = reader(kafka, topic, group=group, max_buffered_bytes=2**16)
    async with SparkFeeder(consumer, gate, max_records=100, max_in_flight=3) as one:
        await until(lambda: gate.waiting > 0 and one.stats().in_flight == 3)
        seen = []
        for _ in range(20):  # as much as it may hold, and no more however long one waits
            await asyncio.sleep(0.01)
            seen.append(one.stats())
        assert {stats.in_flight for stats in seen} == {3}
        place = TopicPartition(topic, 0)
        assert consumer.progress()[place].fetched < 5000  # the fetchers wait, too
        lane = one._ours.lanes[place]
        assert lane.position is not None
        assert lane.position <= 400  # three on their way, and one that is full
        gate.unlock()
        await one.caught_up()
    assert numbers(landed(tmp_path)) == list(range(5000))


async def test_closing_writes_what_was_read_within_its_grace(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100))
    async with feeder(kafka, topic, group, LandingFolder(tmp_path), max_wait_ms=600_000) as one:
        await until(lambda: one.stats().records == 100 or one._collector.size > 0)
        await send(kafka, topic, range(100, 120))
        lane = one._ours.lanes[TopicPartition(topic, 0)]
        await until(lambda: lane.position == 120)
        assert one.stats().records == 100
    assert numbers(landed(tmp_path)) == list(range(120))
    assert await committed(kafka, topic, group) == [120]


async def test_what_is_not_written_within_the_grace_is_the_next_ones(
    kafka: KafkaHandle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(200))
    gate = Gate(tmp_path, asyncio.get_running_loop())
    async with feeder(kafka, topic, group, gate, grace_ms=100) as one:
        await one.caught_up()
        gate.shut()
        await send(kafka, topic, range(200, 400))
        await until(lambda: gate.waiting > 0)
        asyncio.get_running_loop().call_later(0.3, gate.unlock)
    assert "not written within the grace" in caplog.text
    async with feeder(kafka, topic, group, LandingFolder(tmp_path)) as one:
        await one.caught_up()
    assert numbers(landed(tmp_path)) == list(range(400))


async def test_a_topic_that_was_created_anew_is_told_of(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(), kafka.group()
    sink = LandingFolder(tmp_path)
    await send(kafka, topic, range(20))
    async with feeder(kafka, topic, group, sink) as one:
        await one.caught_up()
    place = TopicPartition(topic, 0)
    (head,) = (tmp_path / "_claims" / f"{topic}-0").iterdir()
    head.rename(head.with_name(f"{20:020d}-{500:020d}-{'0' * 32}"))  # the log was longer once
    with pytest.raises(SinkOffsetConflict, match=r"up to offset 500.* gives offset 0") as caught:
        async with feeder(kafka, topic, group, LandingFolder(tmp_path)) as one:
            await one.run()
    assert caught.value.partition == place


async def test_what_is_written_can_be_shaped(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(30))
    seen: list[pa.Table] = []

    def only_even(table: pa.Table) -> pa.Table:
        even = [int(value.as_py()) % 2 == 0 for value in table["value"]]
        return table.filter(pa.array(even))

    async def keep(table: pa.Table, batch: FeedBatch) -> None:
        seen.append(table)

    async with feeder(
        kafka, topic, group, write=keep, columns=["value", "key"], transform=only_even
    ) as one:
        await one.caught_up()
        assert one.stats().records == 30
    assert seen[0].column_names == ["value", "key"]
    assert sorted(int(v.as_py()) for t in seen for v in t["value"]) == list(range(0, 30, 2))


async def test_two_members_of_a_group_in_zookeeper_feed_one_folder(
    kafka_zk: KafkaWithZooKeeper, tmp_path: Path
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    await send(kafka_zk, topic, range(400), 4)

    def one_of_them() -> SparkFeeder:
        consumer: Consumer[Any, Any] = in_zookeeper(
            kafka_zk, topic, group_id=group, commit_policy="manual"
        )
        return SparkFeeder(consumer, LandingFolder(tmp_path), max_records=30, max_wait_ms=20)

    async with one_of_them() as one:
        await until(lambda: one.stats().records > 0)
        async with one_of_them() as other:
            await until(lambda: len(one._ours.lanes) == len(other._ours.lanes) == 2)
            await send(kafka_zk, topic, range(400, 800), 4)
            await until(lambda: one.stats().records + other.stats().records == 800)
            for each in (one, other):
                await each.caught_up()
            assert other.stats().records > 0
    assert numbers(landed(tmp_path)) == list(range(800))
    assert all(in_a_row(found) for found in ranges(tmp_path).values())
    async with in_zookeeper(kafka_zk, topic, group_id=group) as reader_of_all:
        told = await reader_of_all.committed(partitions(topic, 0, 1, 2, 3))
    assert set(told.values()) == {200}


# --- functions of the user's own --------------------------------------------------------------


async def test_a_batch_that_was_promised_is_made_again_as_it_was(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(70))
    tried: list[FeedBatch] = []

    async def die(table: pa.Table, batch: FeedBatch) -> None:
        tried.append(batch)
        raise RuntimeError("here the process dies")

    with pytest.raises(SinkFailed, match="dies"):
        async with feeder(kafka, topic, group, write=die, retries=0, max_records=70) as one:
            await one.run()
    await send(kafka, topic, range(70, 200))
    again: list[FeedBatch] = []

    def keep(table: pa.Table, batch: FeedBatch) -> None:
        again.append(batch)

    async with feeder(kafka, topic, group, write=keep, max_records=30) as one:
        await one.caught_up()
    assert again[0].id == tried[0].id
    assert again[0].txn_app_id == tried[0].txn_app_id
    assert again[0].txn_app_id.startswith(f"asyncconsumer:{topic}:0:")
    assert again[0].txn_version == 70
    assert [int(v.as_py()) for b in again for v in b.table["value"]] == list(range(200))
    assert await committed(kafka, topic, group) == [200]


async def test_nothing_is_written_behind_what_failed(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(200))
    seen: list[int] = []

    def write_or_not(table: pa.Table, batch: FeedBatch) -> None:
        if batch.txn_version == 100:
            raise RuntimeError("not this one")
        seen.append(batch.txn_version)

    with pytest.raises(SinkFailed, match="RuntimeError: not this one"):
        async with feeder(kafka, topic, group, write=write_or_not, retries=0) as one:
            await one.run()
    assert seen == [50]
    assert await committed(kafka, topic, group) == [50]


async def test_batches_for_a_function_are_of_one_partition_each(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(300), 3)
    seen: list[FeedBatch] = []
    async with feeder(kafka, topic, group, write=lambda table, batch: seen.append(batch)) as one:
        await one.caught_up()
    assert {len(batch.parts) for batch in seen} == {1}
    assert sum(batch.rows for batch in seen) == 300


def write(table: pa.Table, batch: FeedBatch) -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda one: SparkFeeder(one), "needs a sink, or a function"),
        (lambda one: SparkFeeder(one, LandingFolder("x"), write=write), "one of the two"),
        (lambda one: SparkFeeder(one, LandingFolder("x"), spark=object()), "without a session"),
        (lambda one: SparkFeeder(one, write=write, max_records=0), "max_records must be"),
        (lambda one: SparkFeeder(one, write=write, retries=-1), "retries must be"),
        (lambda one: SparkFeeder(one, write=write, columns=["valeu"]), "no such column"),
    ],
)
@pytest.mark.fast
async def test_what_makes_no_sense_is_told_at_once(
    make: Callable[[Any], SparkFeeder], said: str
) -> None:
    consumer = Consumer("t", bootstrap_servers="k:1", group_id="g", enable_auto_commit=False)
    with pytest.raises(ConfigError, match=said):
        make(consumer)


@pytest.mark.fast
async def test_commits_are_the_feeders_alone() -> None:
    auto = Consumer("t", bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match="commit_policy='manual'"):
        SparkFeeder(auto, write=write)
    nowhere = Consumer(bootstrap_servers="k:1", partitions=[TopicPartition("t", 0)])
    with pytest.raises(ConfigError, match="keeps no offsets"):
        SparkFeeder(nowhere, write=write)


class Ends:
    """A consumer whose stream ends by itself, as with stop_at: two partitions, ten records each."""

    is_open = True
    commits = False
    assignment = frozenset(partitions("t", 0, 1))

    def __init__(self, error: Exception | None = None) -> None:
        reading = SimpleNamespace(on_poison="raise")
        self.config = SimpleNamespace(auto_commit=False, reading=reading)
        self.error = error

    def listen(self, listener: object) -> None:
        """Nothing is to be told."""

    def events(self) -> EventStream:
        return EventStream()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Nobody reads it after us."""

    def progress(self) -> dict[TopicPartition, object]:
        return {}

    async def arrow(self, **_: object) -> AsyncIterator[pa.RecordBatch]:
        for number in range(2):
            part = batch("t", number, 0, range(number * 10, number * 10 + 10)).parts
            for records in part[TopicPartition("t", number)].table.to_batches():
                yield records
        if self.error is not None:
            raise self.error


@pytest.mark.fast
@pytest.mark.parametrize("most", [4, 1000])
async def test_where_reading_ends_by_itself_all_is_written_before_run_returns(
    tmp_path: Path, most: int
) -> None:
    consumer: Any = Ends()
    async with SparkFeeder(consumer, LandingFolder(tmp_path), max_records=most) as one:
        await one.run()
        assert numbers(landed(tmp_path)) == list(range(20))
    assert numbers(landed(tmp_path)) == list(range(20))


@pytest.mark.parametrize("most", [4, 1000])
async def test_where_nothing_comes_any_more_all_is_written_before_run_returns(
    kafka: KafkaHandle, tmp_path: Path, most: int
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(20))
    consumer = reader(kafka, topic, group=group, idle_timeout_ms=500)
    async with SparkFeeder(consumer, LandingFolder(tmp_path), max_records=most) as one:
        await one.run()
        assert numbers(landed(tmp_path)) == list(range(20))
    assert numbers(landed(tmp_path)) == list(range(20))


@pytest.mark.fast
async def test_a_timeout_is_raised_when_all_is_written(tmp_path: Path) -> None:
    consumer: Any = Ends(error=ConsumerTimeout(500))
    with pytest.raises(ConsumerTimeout):
        async with SparkFeeder(consumer, LandingFolder(tmp_path)) as one:
            await one.run()
    assert numbers(landed(tmp_path)) == list(range(20))


@pytest.mark.fast
async def test_a_mistake_while_reading_is_raised_as_it_is(tmp_path: Path) -> None:
    consumer: Any = Ends(error=ValueError("pyarrow says no"))
    with pytest.raises(ValueError, match="says no"):
        async with SparkFeeder(consumer, LandingFolder(tmp_path)) as one:
            await one.run()


class Stays(Ends):
    """The same, and then there is nothing more for now."""

    async def arrow(self, **_: object) -> AsyncIterator[pa.RecordBatch]:
        async for records in super().arrow():
            yield records
        await asyncio.Event().wait()


@pytest.mark.fast
async def test_a_mistake_elsewhere_ends_the_block_and_leaves_nothing_waiting(
    tmp_path: Path,
) -> None:
    """By then no task can be started any more: what is collected is another's to write."""
    consumer: Any = Stays()

    async def mistaken() -> None:
        raise ValueError("a mistake")

    async def feed(one: SparkFeeder) -> None:
        async with one:
            await until(lambda: one._collector.size > 0)
            one._scope.start(mistaken(), "mistaken")
            await one.run()

    one = SparkFeeder(consumer, LandingFolder(tmp_path), max_wait_ms=60_000)
    with pytest.raises(ExceptionGroup) as caught:
        await feed(one)
    assert caught.group_contains(ValueError, match="a mistake")
    assert not caught.group_contains(RuntimeError)
    assert one.stats().in_flight == 0


@pytest.mark.fast
async def test_what_cannot_be_written_in_the_end_is_told_of(tmp_path: Path) -> None:
    consumer: Any = Ends()
    gate = Gate(tmp_path, asyncio.get_running_loop())

    def full() -> None:
        raise OSError(28, "No space left on device")

    gate.trouble = full
    with pytest.raises(SinkFailed, match="No space"):
        async with SparkFeeder(consumer, gate, retries=0) as one:
            await one.run()


class OwnOffsets:
    """Nothing is asked of it."""

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        raise NotImplementedError

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        raise NotImplementedError


@pytest.mark.fast
async def test_a_function_needs_offsets_that_keep_its_promises(tmp_path: Path) -> None:
    manual: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    zookeeper: dict[str, Any] = {
        **manual,
        "group_protocol": "zookeeper",
        "zookeeper_connect": "z:1",
    }
    own: Consumer[Any, Any] = Consumer("t", bootstrap_servers="k:1", offsets=OwnOffsets(), **manual)
    in_zookeeper: Consumer[Any, Any] = Consumer("t", **zookeeper)
    in_both: Consumer[Any, Any] = Consumer("t", offsets_storage="kafka", **zookeeper)
    for one in (own, in_zookeeper, in_both):
        with pytest.raises(ConfigError, match=r"a sink that remembers .* or have offsets in Kafka"):
            SparkFeeder(one, write=write)
        SparkFeeder(one, LandingFolder(tmp_path))
    in_kafka: Consumer[Any, Any] = Consumer(
        "t", offsets_storage="kafka", dual_commit_enabled=False, **zookeeper
    )
    SparkFeeder(in_kafka, write=write)
