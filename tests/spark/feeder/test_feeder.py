"""Feeders of a fake cluster, on virtual time: hanging writes, rebalances and lost records."""

import asyncio
import gc
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.errors import (
    ConfigError,
    CorruptRecords,
    OffsetUnavailable,
    RecordsDeleted,
    SinkFailed,
    SinkOffsetConflict,
)
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.spark.feeder.sink_caller import Grace, SinkCaller
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import make_consumer
from tests.support.helpers import until
from tests.support.memory_sink import (
    AT,
    HEARTBEAT,
    OTHER,
    QUICK,
    REBALANCE,
    UNKNOWN_MEMBER,
    MemorySink,
    group_has,
    make_feeder,
    world,
)

pytestmark = pytest.mark.fast


def corrupt_batch(cluster: GroupCluster, base: int, place: TopicPartition) -> None:
    """Corrupt the batch that starts at offset `base`."""
    log = cluster.view.partition(place).log
    log.batches = [
        batch._replace(data=batch.data[:-3] + b"???") if batch.base == base else batch
        for batch in log.batches
    ]


def fetched(feeder: SparkFeeder, offset: int) -> bool:
    return feeder._consumer.progress()[AT].fetched == offset


async def observed(feeder: SparkFeeder, offset: int) -> bool:
    return await group_has(feeder) == offset


@simulated(seeds=range(3), limit=600)
async def test_a_late_write_does_not_overwrite_newer_commits() -> None:
    """Check a partition that was reassigned and written before the old write ended."""
    async with world(records=30) as cluster:
        sink, gate = MemorySink(remembers=False), asyncio.Event()
        sink.gates[AT] = gate
        async with make_feeder(cluster, sink, max_in_flight=4) as feeder:
            await until(lambda: feeder.stats().in_flight == 3)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: len(sink.written) >= 3)
            cluster.append("t", 0, 70)
            await until(lambda: len(sink.written) == 10)
            await feeder.caught_up()
            gate.set()
            await until(lambda: len(sink.written) == 11)
            await asyncio.sleep(1)
            assert await group_has(feeder) == 100


@simulated(seeds=range(3), limit=600)
async def test_a_feeder_fenced_during_a_revocation_continues_after_rejoining() -> None:
    async with world(records=20) as cluster:
        sink, gate = MemorySink(remembers=False), asyncio.Event()
        sink.gates[AT] = gate
        async with make_feeder(cluster, sink, listener_timeout_ms=30_000) as feeder:
            await until(lambda: feeder.stats().in_flight == 2)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: not feeder._state.feeds)
            cluster.fail_next(HEARTBEAT, UNKNOWN_MEMBER)
            await asyncio.sleep(1)
            gate.set()
            await until(lambda: AT in feeder._state.feeds)
            await feeder.caught_up()
            assert sink.ranges()[-1] == (10, 20)
            assert await group_has(feeder) == 20


@simulated(seeds=range(3), limit=600)
async def test_a_batch_without_a_write_intent_is_read_again_in_order() -> None:
    async with world(records=20) as cluster:
        sink = MemorySink(remembers=False)
        async with make_feeder(cluster, sink) as feeder:
            make, refused = feeder._state.intents.declare, list[FeedBatch]()

            async def refuse_the_first(batch: FeedBatch) -> Collection[TopicPartition]:
                if refused:
                    return await make(batch)
                refused.append(batch)
                return batch.parts.keys()

            feeder._state.intents.declare = refuse_the_first  # type: ignore[method-assign]
            await feeder.caught_up()
        assert sink.ranges() == [(0, 10), (10, 20)]


@simulated(seeds=range(3), limit=600)
async def test_an_abandoned_write_does_not_delay_other_partitions() -> None:
    async with world(2, zero=30) as cluster:
        sink, gate = MemorySink(), asyncio.Event()
        sink.gates[AT] = gate
        async with make_feeder(cluster, sink) as feeder:
            await until(lambda: feeder.stats().in_flight == 2)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: feeder.stats().abandoned > 0)
            cluster.append("t", 1, 50)
            await until(lambda: sink.ends.get(OTHER) == 50)
            assert len(feeder._state.feeds) == 2
            await until(lambda: sink.ends.get(AT) == 30)
            sink.refuses = lambda batch: [
                place for place, part in batch.parts.items() if part.start != sink.ends.get(place)
            ]
            gate.set()
            await until(lambda: feeder.stats().refused == 1)


@simulated(seeds=range(3), limit=600)
async def test_a_refused_batch_is_read_again_if_the_sink_has_no_offset() -> None:
    async with world(records=60) as cluster:
        sink, refused = MemorySink(), list[FeedBatch]()

        def refuse_the_first(batch: FeedBatch) -> Collection[TopicPartition]:
            refused.append(batch)
            return batch.parts.keys() if len(refused) == 1 else ()

        sink.refuses = refuse_the_first
        async with make_feeder(cluster, sink) as feeder:
            await until(lambda: len(refused) > 1)
            await feeder.caught_up()
        assert sink.ranges() == [(offset, offset + 10) for offset in range(0, 60, 10)]


@simulated(seeds=range(3), limit=600)
async def test_caught_up_waits_for_partitions_that_are_being_assigned() -> None:
    async with world(records=20) as cluster:
        sink = MemorySink()
        async with make_feeder(cluster, sink, listener_timeout_ms=30_000) as feeder:
            await feeder.caught_up()
            sink.seconds_to_load = 5.0
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: not feeder._state.feeds)
            cluster.append("t", 0, 100)
            await until(lambda: AT in feeder._consumer.assignment)
            assert not feeder._state.feeds
            await feeder.caught_up()
            assert sink.ends == {AT: 120}


@pytest.mark.parametrize("records", [0, 20])
@simulated(seeds=range(3), limit=600)
async def test_a_sink_that_loads_its_offsets_too_slowly_ends_the_feeder(records: int) -> None:
    """Check an empty log, too, which would otherwise cause no error."""
    async with world(records=records) as cluster:
        sink = MemorySink()
        sink.seconds_to_load = 5.0
        with pytest.raises(SinkFailed, match=r"load its offsets.*listener_timeout_ms"):
            async with make_feeder(cluster, sink) as feeder, asyncio.timeout(60):
                await feeder.caught_up()
        assert not sink.written


@simulated(seeds=range(3), limit=600)
async def test_loading_offsets_has_no_limit_if_partitions_are_assigned_before() -> None:
    async with world(records=20) as cluster, make_consumer(cluster, **QUICK) as reader:
        await reader.wait_assigned()
        sink = MemorySink()
        sink.seconds_to_load = 5.0
        async with SparkFeeder(reader, sink, max_wait_ms=50) as feeder:
            await feeder.caught_up()
        assert sink.ends == {AT: 20}


class Down(MemorySink):
    """A sink that fails a given number of times and writes after that."""

    def __init__(self, *errors: BaseException, remembers: bool = True) -> None:
        super().__init__(remembers=remembers)
        self.errors = list(errors)

    async def publish(self, batch: FeedBatch, prepared: object) -> Collection[TopicPartition]:
        if self.errors:
            raise self.errors.pop(0)
        return await super().publish(batch, prepared)


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("written", [0, 30])
@simulated(seeds=range(3), limit=600)
async def test_unwritten_records_are_written_by_the_next_feeder(
    written: int, remembers: bool
) -> None:
    """Check a feeder of the same consumer, whose position is after the unwritten records."""
    async with world(records=written) as cluster, make_consumer(cluster, **QUICK) as reader:
        sink = Down(remembers=remembers)
        quick: dict[str, Any] = {"max_records": 10, "max_wait_ms": 50, "retries": 0}
        if written:
            async with SparkFeeder(reader, sink, **quick) as feeder:
                await feeder.caught_up()
        sink.errors.append(OSError("the store is down"))
        cluster.append("t", 0, 100)
        with pytest.raises(SinkFailed, match="is down"):
            async with SparkFeeder(reader, sink, **quick) as feeder:
                await feeder.run()
        cluster.append("t", 0, 10)
        async with SparkFeeder(reader, sink, **quick) as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(offset, offset + 10) for offset in range(0, written + 110, 10)]


@pytest.mark.parametrize("retries", [0, 1])
@simulated(seeds=range(3), limit=600)
async def test_a_cancelled_error_of_a_sink_counts_as_a_failure(retries: int) -> None:
    """Check a sink that awaits a cancelled task. No later batch is written."""
    async with world(records=30) as cluster:
        sink = Down(asyncio.CancelledError(), asyncio.CancelledError(), remembers=False)
        with pytest.raises(SinkFailed, match=rf"write .*, {retries + 1} times?: CancelledError"):
            async with make_feeder(cluster, sink, retries=retries) as feeder:
                await feeder.run()
        assert not sink.written
        sink.errors = [asyncio.CancelledError()]
        async with make_feeder(cluster, sink, retries=1) as feeder:
            await feeder.caught_up()
            assert feeder.stats().retries == 1
        assert sink.ranges() == [(0, 10), (10, 20), (20, 30)]


@simulated(seeds=range(3), limit=600)
async def test_no_batch_is_written_after_a_cancelled_write_task() -> None:
    async with world(records=30) as cluster:
        sink = MemorySink()
        sink.gates[AT] = asyncio.Event()
        async with make_feeder(cluster, sink) as feeder:
            await until(lambda: feeder.stats().in_flight == 2)
            writing = [each for each in asyncio.all_tasks() if each.get_name().startswith("write")]
            min(writing, key=asyncio.Task.get_name).cancel()
            await until(lambda: feeder.stats().in_flight == 0)
            await asyncio.sleep(1)
        assert not sink.written


async def test_a_cancelled_error_in_a_thread_counts_as_a_failure() -> None:
    asking = SinkCaller("sink", threads=1, retries=0, randomness=Random(1))
    elsewhere = Future[None]()
    elsewhere.cancel()
    with pytest.raises(SinkFailed, match="CancelledError"):
        await asking.call("write", elsewhere.result)
    await asking.call_once(elsewhere.result)
    await asking.close(Grace(10.0))


@simulated(seeds=range(3), limit=600)
async def test_a_feeder_does_not_write_records_that_were_read_before_it() -> None:
    async with world() as cluster, make_consumer(cluster, **QUICK) as reader:
        cluster.append("t", 0, 20, batches=2)
        async for records in reader.batches(max_records=5):
            assert len(records) == 5
            break
        await reader.commit()
        sink = Down(OSError("the store is down"))
        with pytest.raises(SinkFailed, match="is down"):
            async with SparkFeeder(reader, sink, max_wait_ms=50, retries=0) as feeder:
                await feeder.run()
        async with SparkFeeder(reader, sink, max_wait_ms=50) as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(5, 20)]


# --- closing ----------------------------------------------------------------------------------


@simulated(seeds=range(3), limit=600)
async def test_closing_waits_once_for_grace_ms() -> None:
    """Check that the waits for the batch and for its thread have one limit together."""
    async with world(records=10) as cluster, make_consumer(cluster, **QUICK) as reader:
        sink, now = MemorySink(), asyncio.get_running_loop().time
        sink.gates[AT] = asyncio.Event()
        async with SparkFeeder(reader, sink, max_records=10, grace_ms=60_000) as feeder:
            feeder._caller._threads.end = asyncio.Event().wait  # type: ignore[assignment]
            await until(lambda: feeder.stats().in_flight == 1)
            closing = now()  # on virtual time
        assert now() == pytest.approx(closing + 60)


@simulated(seeds=range(3), limit=600)
async def test_closing_does_not_wait_for_abandoned_writes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(records=30) as cluster:
        sink = MemorySink()
        sink.gates[AT] = asyncio.Event()
        async with make_feeder(cluster, sink) as feeder:
            await until(lambda: feeder.stats().in_flight == 2)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: sink.ends.get(AT) == 30)
        assert "within the grace" not in caplog.text


# --- deleted records, and offsets without records ---------------------------------------------


async def write_up_to_100(cluster: GroupCluster, sink: MemorySink) -> None:
    """Write up to offset 100. The log then has offsets 200 to 300."""
    for _ in range(10):
        cluster.append("t", 0, 10)
    async with make_feeder(cluster, sink) as feeder:
        await feeder.caught_up()
    for _ in range(20):
        cluster.append("t", 0, 10)
    cluster.advance_log_start(AT, 200)


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@simulated(seeds=range(2), limit=600)
async def test_records_deleted_before_they_were_written_are_reported(reset: str) -> None:
    async with world() as cluster:
        sink = MemorySink()
        await write_up_to_100(cluster, sink)
        for _ in range(2):  # also a second time
            with pytest.raises(RecordsDeleted, match=r"up to offset 100.*`fail_on_data_loss"):
                async with make_feeder(cluster, sink, auto_offset_reset=reset) as feeder:
                    await feeder.run()
        assert sink.ends == {AT: 100}


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@simulated(seeds=range(3), limit=600)
async def test_records_before_a_gap_are_written(reset: str, fail: bool) -> None:
    """Check records in a write, in collection, and not yet in a batch. Kafka has deleted them."""
    async with world() as cluster:
        sink, gate = MemorySink(), asyncio.Event()
        sink.gates[AT] = gate
        options: dict[str, Any] = {"auto_offset_reset": reset, "fail_on_data_loss": fail}
        sink.ends[AT] = 0
        async with make_feeder(cluster, sink, max_wait_ms=60_000, **options) as feeder:
            await until(lambda: AT in feeder._consumer.progress())
            for count in (25, 20, 11):  # one fetch each
                end = cluster.append("t", 0, count).stop
                await until(partial(fetched, feeder, end))
            for count in (44, 20):
                cluster.append("t", 0, count, replicated=False)
            log = cluster.view.partition(AT).log
            log.high = log.end  # no fetch is answered before records are deleted
            cluster.advance_log_start(AT, 100)
            await asyncio.sleep(5)
            assert not sink.written
            gate.set()
            if fail:
                with pytest.raises(RecordsDeleted, match="up to offset 56"):
                    await feeder.run()
            else:
                await feeder.caught_up()
        assert sink.ranges()[:5] == [(offset, offset + 10) for offset in range(0, 50, 10)]
        assert sink.ends == {AT: 56 if fail else 120}
        assert feeder.stats().records == (56 if fail else 76)


@simulated(seeds=range(3), limit=600)
async def test_caught_up_raises_for_deleted_records() -> None:
    """Check also a concurrent write of another partition."""
    async with world(2) as cluster:
        sink, gate = MemorySink(), asyncio.Event()
        await write_up_to_100(cluster, sink)
        sink.gates[OTHER] = gate
        sink.ends[OTHER] = 0
        cluster.append("t", 1, 10)
        async with make_feeder(cluster, sink, auto_offset_reset="latest") as feeder:
            await until(lambda: feeder.stats().in_flight == 1)
            asyncio.get_running_loop().call_later(5, gate.set)
            with pytest.raises(RecordsDeleted, match="up to offset 100"):
                await feeder.caught_up()
        assert sink.ends == {AT: 100, OTHER: 10}


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@simulated(seeds=range(2), limit=600)
async def test_without_fail_on_data_loss_the_remaining_records_are_written(reset: str) -> None:
    async with world() as cluster:
        sink = MemorySink()
        await write_up_to_100(cluster, sink)
        options: dict[str, Any] = {"auto_offset_reset": reset, "fail_on_data_loss": False}
        async with make_feeder(cluster, sink, **options) as feeder:
            await until(lambda: feeder.stats().records == 100)
        assert sink.ranges()[10] == (100, 210)
        assert sink.ends == {AT: 300}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@simulated(seeds=range(2), limit=600)
async def test_no_record_of_a_re_created_topic_is_written(reset: str) -> None:
    async with world(records=30) as cluster:
        sink = MemorySink()
        sink.ends[AT] = 0
        async with make_feeder(cluster, sink, auto_offset_reset=reset) as feeder:
            await feeder.caught_up()
            cluster.recreate_topic("t")
            cluster.append("t", 0, 50)
            await asyncio.sleep(20)
            cluster.append("t", 0, 10)  # `latest` would start here
            with pytest.raises(SinkOffsetConflict, match=r"up to offset 30.* re-created"):
                await feeder.run()
        assert sink.ranges() == [(0, 10), (10, 20), (20, 30)]


def test_the_error_for_a_re_created_topic_names_the_options_to_change() -> None:
    """Check all options, because with a new group only, Delta would skip the batches."""
    message = str(SinkOffsetConflict("write()", AT, 30, 0))
    assert "a new `app` on the feeder" in message
    assert "a new `group_id`" in message
    assert "a new `app` on the DeltaSink or IcebergSink" in message


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@simulated(seeds=range(2), limit=600)
async def test_records_deleted_from_offset_0_are_reported(reset: str) -> None:
    async with world() as cluster:
        sink = MemorySink()
        sink.ends[AT] = 0
        async with make_feeder(cluster, sink, auto_offset_reset=reset) as feeder:
            await feeder.caught_up()
            cluster.recreate_topic("t")  # no record of it was read
            cluster.append("t", 0, 5)
            await until(lambda: sink.ends == {AT: 5})
        sink.ends[AT] = 0
        cluster.append("t", 0, 5)
        cluster.advance_log_start(AT, 5)
        with pytest.raises(RecordsDeleted, match="up to offset 0"):
            async with make_feeder(cluster, sink, auto_offset_reset=reset) as feeder:
                await feeder.run()


@simulated(seeds=range(2), limit=600)
async def test_a_sink_offset_makes_a_committed_offset_unnecessary() -> None:
    async with world(records=20) as cluster:
        sink = MemorySink()
        sink.ends[AT] = 10
        async with make_feeder(cluster, sink, auto_offset_reset="none") as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(10, 20)]


@simulated(seeds=range(2), limit=600)
async def test_a_sink_offset_after_the_end_of_the_log_is_an_error() -> None:
    async with world(records=20) as cluster:
        sink = MemorySink()
        sink.ends[AT] = 30
        with pytest.raises(OffsetUnavailable, match="the log ends at 20"):
            async with make_feeder(cluster, sink, auto_offset_reset="none") as feeder:
                await feeder.run()
        assert not sink.written


@simulated(seeds=range(2), limit=600)
async def test_transaction_markers_and_aborted_records_are_no_lag() -> None:
    """Check a log that ends with an aborted transaction and its marker."""
    async with world() as cluster:
        cluster.append_transaction("t", 0, 5, commit=True)
        cluster.append_transaction("t", 0, 5, commit=False)
        sink = MemorySink()
        reader = make_consumer(cluster, **QUICK, isolation_level="read_committed")
        async with SparkFeeder(reader, sink, max_wait_ms=50) as feeder:
            await feeder.caught_up()
            assert feeder.stats().lag == 0
            assert sink.ends == {AT: 5}
            await until(lambda: observed(feeder, 12))
            cluster.append_transaction("t", 0, 3, commit=True)
            await feeder.caught_up()
            assert sink.ranges() == [(0, 5), (5, 15)]


@simulated(seeds=range(2), limit=600)
async def test_a_batch_after_a_transaction_marker_gets_a_write_intent() -> None:
    """Check markers after transactions. Their offsets are committed before the batch."""
    async with world() as cluster:
        cluster.append_transaction("t", 0, 5, commit=True)
        sink, gate = MemorySink(remembers=False), asyncio.Event()
        async with make_feeder(cluster, sink) as feeder:
            await feeder.caught_up()
            await until(lambda: observed(feeder, 6))
            sink.gates[AT] = gate
            cluster.append_transaction("t", 0, 3, commit=True)
            await until(lambda: not sink.gates)  # the write has started
            offset = await group_has(feeder)
            assert int(offset) == 5
            assert offset.metadata.startswith("asyncconsumer batch until 9 of ")
            gate.set()
            await until(lambda: observed(feeder, 10))
            assert feeder.stats().lag == 0
        assert sink.ranges() == [(0, 5), (5, 9)]


def corrupt_at_30(cluster: GroupCluster) -> None:
    """Fill three partitions. The second has a corrupt batch between good records."""
    for partition in range(3):
        cluster.append("t", partition, 30)
    for _ in range(2):
        cluster.append("t", 1, 5)
    corrupt_batch(cluster, 30, OTHER)


@pytest.mark.parametrize("remembers", [True, False])
@simulated(seeds=range(3), limit=600)
async def test_records_before_a_corrupt_batch_are_written(remembers: bool) -> None:
    async with world(3) as cluster:
        corrupt_at_30(cluster)
        sink = MemorySink(remembers=remembers)
        options: dict[str, Any] = {"max_records": 1000, "max_wait_ms": 60_000}
        with pytest.raises(CorruptRecords, match="at offset 30"):
            async with make_feeder(cluster, sink, **options) as feeder:
                await feeder.run()
        assert sink.ranges(OTHER) == [(0, 30)]
        with pytest.raises(CorruptRecords, match="at offset 30"):
            async with make_feeder(cluster, sink, **options) as feeder:
                await feeder.run()
        assert sink.ranges(OTHER) == [(0, 30)]


@simulated(seeds=range(3), limit=600)
async def test_skipping_a_corrupt_batch_continues_after_it() -> None:
    async with world(3) as cluster:
        corrupt_at_30(cluster)
        sink = MemorySink()
        async with make_feeder(cluster, sink, on_poison="skip", max_records=1000) as feeder:
            await feeder.caught_up()
            assert feeder.stats().records == 95
        assert sink.ends == {AT: 30, OTHER: 40, TopicPartition("t", 2): 30}


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("remembers", [True, False])
@simulated(seeds=range(2), limit=600)
async def test_batches_have_up_to_max_bytes_though_a_fetch_has_more(remembers: bool) -> None:
    async with world(2) as cluster:
        for partition in (0, 1):
            cluster.append("t", partition, 100, size=1000)  # one fetch has all of it
        sink, limit = MemorySink(remembers=remembers), 20_000
        sizes: list[int] = []

        def seen(batch: FeedBatch) -> Collection[TopicPartition]:
            sizes.append(batch.size)
            return ()

        sink.refuses = seen
        async with make_feeder(cluster, sink, max_records=1000, max_bytes=limit) as feeder:
            await feeder.caught_up()
        assert max(sizes) <= limit
        assert len(sizes) < 20  # batches are not much smaller than the limit
        assert sink.ends == {AT: 100, OTHER: 100}


@simulated(seeds=range(2), limit=600)
async def test_a_record_above_max_bytes_is_a_batch_of_its_own() -> None:
    async with world() as cluster:
        cluster.append("t", 0, 3, size=1000)
        sink = MemorySink()
        async with make_feeder(cluster, sink, max_bytes=500) as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(0, 1), (1, 2), (2, 3)]


@simulated(seeds=range(2), limit=600)
async def test_written_batches_are_released_before_the_commit() -> None:
    """Check that no object refers to written records while their commit is pending."""
    async with world(2, zero=20, one=20) as cluster:
        sink, reported = MemorySink(), list[Mapping[TopicPartition, int]]()
        async with make_feeder(cluster, sink, max_records=5) as feeder:
            gate = asyncio.Event()

            async def slow(ends: Mapping[TopicPartition, int]) -> None:
                reported.append(ends)
                await gate.wait()

            feeder._state.on_written = slow  # type: ignore[method-assign]
            await until(lambda: sink.ends == {AT: 20, OTHER: 20})
            gc.collect()
            assert len(reported) >= 8
            assert not [each for each in gc.get_objects() if isinstance(each, FeedBatch)]
            gate.set()


def test_a_consumer_with_at_most_once_commits_is_refused() -> None:
    reader: Consumer[Any, Any] = Consumer(
        "t", bootstrap_servers="k:1", group_id="g", commit_policy="at_most_once"
    )
    with pytest.raises(ConfigError, match="Set `commit_policy='manual'`"):
        SparkFeeder(reader, MemorySink())


def test_a_consumer_with_a_dead_letter_topic_is_refused() -> None:
    dead_letter_records: dict[str, Any] = {
        "on_poison": "dead_letter",
        "dead_letter_topic": "dead",
    }
    reader = Consumer(
        "t", bootstrap_servers="k:1", group_id="g", commit_policy="manual", **dead_letter_records
    )
    with pytest.raises(ConfigError, match=r"no dead letters.* 'skip'"):
        SparkFeeder(reader, MemorySink())


def test_an_app_without_a_write_function_is_refused() -> None:
    reader: Consumer[Any, Any] = Consumer(
        "t", bootstrap_servers="k:1", group_id="g", enable_auto_commit=False
    )
    with pytest.raises(ConfigError, match="`app` of a feeder needs `write`"):
        SparkFeeder(reader, MemorySink(), app="orders")


@simulated(seeds=range(2), limit=600)
async def test_a_pattern_ignores_invalid_topic_names() -> None:
    """Check invalid names from a broker, because sinks create files with such names."""
    async with world(records=5) as cluster:
        for name in ("../../elsewhere", ".."):
            cluster.add_topic(name, 1)
            cluster.append(name, 0, 5)
        sink = MemorySink()
        reading = make_consumer(cluster, (), pattern=".*", **QUICK)
        async with SparkFeeder(reading, sink, max_records=10, max_wait_ms=50) as feeder:
            await feeder.caught_up()
        assert sink.ends == {AT: 5}
