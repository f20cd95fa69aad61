"""Feeders of a fake cluster, on virtual time: what happens when writes hang and groups go on."""

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
    Shelf,
    group_has,
    make_feeder,
    world,
)

pytestmark = pytest.mark.fast


def damage(cluster: GroupCluster, base: int, place: TopicPartition) -> None:
    """Spoil the batch that begins there."""
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
async def test_a_write_that_ends_late_tells_the_group_nothing_any_more() -> None:
    """A partition that came back and was written meanwhile stays committed."""
    async with world(records=30) as cluster:
        sink, gate = Shelf(remembers=False), asyncio.Event()
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
async def test_who_is_thrown_out_while_a_revoke_waits_goes_on_when_it_is_back() -> None:
    async with world(records=20) as cluster:
        sink, gate = Shelf(remembers=False), asyncio.Event()
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
async def test_a_batch_that_cannot_be_promised_is_read_again_and_nothing_lands_behind_it() -> None:
    async with world(records=20) as cluster:
        sink = Shelf(remembers=False)
        async with make_feeder(cluster, sink) as feeder:
            make, refused = feeder._state.intents.declare, list[FeedBatch]()

            async def not_the_first(batch: FeedBatch) -> Collection[TopicPartition]:
                if refused:
                    return await make(batch)
                refused.append(batch)
                return batch.parts.keys()

            feeder._state.intents.declare = not_the_first  # type: ignore[method-assign]
            await feeder.caught_up()
        assert sink.ranges() == [(0, 10), (10, 20)]


@simulated(seeds=range(3), limit=600)
async def test_one_hung_write_does_not_hold_up_other_partitions_once_its_own_is_given_up() -> None:
    async with world(2, zero=30) as cluster:
        sink, gate = Shelf(), asyncio.Event()
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
async def test_what_was_refused_by_a_sink_that_has_nothing_is_read_again() -> None:
    async with world(records=60) as cluster:
        sink, refused = Shelf(), list[FeedBatch]()

        def the_first(batch: FeedBatch) -> Collection[TopicPartition]:
            refused.append(batch)
            return batch.parts.keys() if len(refused) == 1 else ()

        sink.refuses = the_first
        async with make_feeder(cluster, sink) as feeder:
            await until(lambda: len(refused) > 1)
            await feeder.caught_up()
        assert sink.ranges() == [(offset, offset + 10) for offset in range(0, 60, 10)]


@simulated(seeds=range(3), limit=600)
async def test_caught_up_waits_for_what_is_being_taken_up() -> None:
    async with world(records=20) as cluster:
        sink = Shelf()
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
async def test_a_sink_that_does_not_tell_its_offsets_in_time_ends_it(records: int) -> None:
    """The test includes an empty log, which would otherwise report nothing."""
    async with world(records=records) as cluster:
        sink = Shelf()
        sink.seconds_to_load = 5.0
        with pytest.raises(SinkFailed, match=r"load its offsets.*listener_timeout_ms"):
            async with make_feeder(cluster, sink) as feeder, asyncio.timeout(60):
                await feeder.caught_up()
        assert not sink.written


@simulated(seeds=range(3), limit=600)
async def test_nobody_waits_for_a_feeder_of_a_consumer_that_has_its_partitions_already() -> None:
    async with world(records=20) as cluster, make_consumer(cluster, **QUICK) as reader:
        await reader.wait_assigned()
        sink = Shelf()
        sink.seconds_to_load = 5.0
        async with SparkFeeder(reader, sink, max_wait_ms=50) as feeder:
            await feeder.caught_up()
        assert sink.ends == {AT: 20}


class Down(Shelf):
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
async def test_what_one_feeder_read_and_did_not_write_is_fed_by_the_next_one(
    written: int, remembers: bool
) -> None:
    """Of the same consumer, which stands behind it."""
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
async def test_a_cancellation_within_a_sink_fails_as_anything_else(retries: int) -> None:
    """The sink awaits a task that was cancelled elsewhere. Nothing after it is written."""
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
async def test_behind_a_batch_that_was_cancelled_itself_nothing_is_written() -> None:
    async with world(records=30) as cluster:
        sink = Shelf()
        sink.gates[AT] = asyncio.Event()
        async with make_feeder(cluster, sink) as feeder:
            await until(lambda: feeder.stats().in_flight == 2)
            writing = [each for each in asyncio.all_tasks() if each.get_name().startswith("write")]
            min(writing, key=asyncio.Task.get_name).cancel()
            await until(lambda: feeder.stats().in_flight == 0)
            await asyncio.sleep(1)
        assert not sink.written


async def test_a_thread_may_meet_a_cancellation() -> None:
    asking = SinkCaller("sink", threads=1, retries=0, randomness=Random(1))
    elsewhere = Future[None]()
    elsewhere.cancel()
    with pytest.raises(SinkFailed, match="CancelledError"):
        await asking.call("write", elsewhere.result)
    await asking.call_once(elsewhere.result)
    await asking.close(Grace(10.0))


@simulated(seeds=range(3), limit=600)
async def test_what_was_read_before_there_was_a_feeder_is_not_its_to_feed() -> None:
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


# --- the end ----------------------------------------------------------------------------------


@simulated(seeds=range(3), limit=600)
async def test_closing_takes_one_grace_whatever_hangs() -> None:
    """The waits for the batch and for its thread have one limit together."""
    async with world(records=10) as cluster, make_consumer(cluster, **QUICK) as reader:
        sink, now = Shelf(), asyncio.get_running_loop().time
        sink.gates[AT] = asyncio.Event()
        async with SparkFeeder(reader, sink, max_records=10, grace_ms=60_000) as feeder:
            feeder._caller._threads.end = asyncio.Event().wait  # type: ignore[assignment]
            await until(lambda: feeder.stats().in_flight == 1)
            closing = now()  # on virtual time
        assert now() == pytest.approx(closing + 60)


@simulated(seeds=range(3), limit=600)
async def test_nobody_waits_in_the_end_for_what_was_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(records=30) as cluster:
        sink = Shelf()
        sink.gates[AT] = asyncio.Event()
        async with make_feeder(cluster, sink) as feeder:
            await until(lambda: feeder.stats().in_flight == 2)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: sink.ends.get(AT) == 30)
        assert "within the grace" not in caplog.text


# --- what is gone, and what never was ---------------------------------------------------------


async def fed_up_to_100(cluster: GroupCluster, sink: Shelf) -> None:
    """Feed up to offset 100. The log continues from 200 to 300."""
    for _ in range(10):
        cluster.append("t", 0, 10)
    async with make_feeder(cluster, sink) as feeder:
        await feeder.caught_up()
    for _ in range(20):
        cluster.append("t", 0, 10)
    cluster.advance_log_start(AT, 200)


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@simulated(seeds=range(2), limit=600)
async def test_what_is_gone_before_it_was_fed_is_reported(reset: str) -> None:
    async with world() as cluster:
        sink = Shelf()
        await fed_up_to_100(cluster, sink)
        for _ in range(2):  # and again
            with pytest.raises(RecordsDeleted, match=r"up to offset 100.*`fail_on_data_loss"):
                async with make_feeder(cluster, sink, auto_offset_reset=reset) as feeder:
                    await feeder.run()
        assert sink.ends == {AT: 100}


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@simulated(seeds=range(3), limit=600)
async def test_what_was_read_before_the_rest_went_is_written(reset: str, fail: bool) -> None:
    """The records exist nowhere else: in a write, in collection, or not yet in a batch."""
    async with world() as cluster:
        sink, gate = Shelf(), asyncio.Event()
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
            log.high = log.end  # and no fetch is answered before some of it is gone
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
async def test_waiting_for_deleted_records_raises() -> None:
    """The test includes a concurrent write of another partition, with an empty log."""
    async with world(2) as cluster:
        sink, gate = Shelf(), asyncio.Event()
        await fed_up_to_100(cluster, sink)
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
async def test_what_is_left_is_fed_to_who_may_lose_the_rest(reset: str) -> None:
    async with world() as cluster:
        sink = Shelf()
        await fed_up_to_100(cluster, sink)
        options: dict[str, Any] = {"auto_offset_reset": reset, "fail_on_data_loss": False}
        async with make_feeder(cluster, sink, **options) as feeder:
            await until(lambda: feeder.stats().records == 100)
        assert sink.ranges()[10] == (100, 210)
        assert sink.ends == {AT: 300}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@simulated(seeds=range(2), limit=600)
async def test_nothing_of_a_topic_recreated_follows_what_was_fed_of_the_old_one(reset: str) -> None:
    async with world(records=30) as cluster:
        sink = Shelf()
        sink.ends[AT] = 0
        async with make_feeder(cluster, sink, auto_offset_reset=reset) as feeder:
            await feeder.caught_up()
            cluster.recreate_topic("t")
            cluster.append("t", 0, 50)
            await asyncio.sleep(20)
            cluster.append("t", 0, 10)  # of which `latest` would begin with the first
            with pytest.raises(SinkOffsetConflict, match=r"up to offset 30.* re-created"):
                await feeder.run()
        assert sink.ranges() == [(0, 10), (10, 20), (20, 30)]


def test_the_error_for_a_recreated_topic_names_the_options_to_change() -> None:
    """By its group alone nothing is written: Delta has more of that txn_app_id already."""
    said = str(SinkOffsetConflict("write()", AT, 30, 0))
    assert "a new `app` on the feeder" in said
    assert "a new `group_id`" in said
    assert "a new `app` on the DeltaSink or IcebergSink" in said


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@simulated(seeds=range(2), limit=600)
async def test_where_a_sink_begins_at_the_beginning_nothing_may_be_gone(reset: str) -> None:
    async with world() as cluster:
        sink = Shelf()
        sink.ends[AT] = 0
        async with make_feeder(cluster, sink, auto_offset_reset=reset) as feeder:
            await feeder.caught_up()
            cluster.recreate_topic("t")  # of which there was nothing
            cluster.append("t", 0, 5)
            await until(lambda: sink.ends == {AT: 5})
        sink.ends[AT] = 0
        cluster.append("t", 0, 5)
        cluster.advance_log_start(AT, 5)
        with pytest.raises(RecordsDeleted, match="up to offset 0"):
            async with make_feeder(cluster, sink, auto_offset_reset=reset) as feeder:
                await feeder.run()


@simulated(seeds=range(2), limit=600)
async def test_a_sink_that_knows_where_to_go_on_needs_no_offset_of_the_group() -> None:
    async with world(records=20) as cluster:
        sink = Shelf()
        sink.ends[AT] = 10
        async with make_feeder(cluster, sink, auto_offset_reset="none") as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(10, 20)]


@simulated(seeds=range(2), limit=600)
async def test_where_the_log_ends_before_what_was_fed_nothing_is_gone() -> None:
    async with world(records=20) as cluster:
        sink = Shelf()
        sink.ends[AT] = 30
        with pytest.raises(OffsetUnavailable, match="the log ends at 20"):
            async with make_feeder(cluster, sink, auto_offset_reset="none") as feeder:
                await feeder.run()
        assert not sink.written


@simulated(seeds=range(2), limit=600)
async def test_what_is_no_record_is_no_lag() -> None:
    """Behind the records there are those of a transaction that was aborted, and markers."""
    async with world() as cluster:
        cluster.append_transaction("t", 0, 5, commit=True)
        cluster.append_transaction("t", 0, 5, commit=False)
        sink = Shelf()
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
async def test_a_batch_behind_what_is_no_record_is_promised_as_well() -> None:
    """Behind each transaction there is a marker, which is committed meanwhile."""
    async with world() as cluster:
        cluster.append_transaction("t", 0, 5, commit=True)
        sink, gate = Shelf(remembers=False), asyncio.Event()
        async with make_feeder(cluster, sink) as feeder:
            await feeder.caught_up()
            await until(lambda: observed(feeder, 6))
            sink.gates[AT] = gate
            cluster.append_transaction("t", 0, 3, commit=True)
            await until(lambda: not sink.gates)  # it is being written
            offset = await group_has(feeder)
            assert int(offset) == 5
            assert offset.metadata.startswith("asyncconsumer batch until 9 of ")
            gate.set()
            await until(lambda: observed(feeder, 10))
            assert feeder.stats().lag == 0
        assert sink.ranges() == [(0, 5), (5, 9)]


def damaged_at_30(cluster: GroupCluster) -> None:
    """Three partitions: the second has thirty good records, and five after a corrupt one."""
    for partition in range(3):
        cluster.append("t", partition, 30)
    for _ in range(2):
        cluster.append("t", 1, 5)
    damage(cluster, 30, OTHER)


@pytest.mark.parametrize("remembers", [True, False])
@simulated(seeds=range(3), limit=600)
async def test_what_was_read_before_a_damaged_batch_is_written(remembers: bool) -> None:
    async with world(3) as cluster:
        damaged_at_30(cluster)
        sink = Shelf(remembers=remembers)
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
async def test_who_skips_what_is_damaged_goes_on_behind_it() -> None:
    async with world(3) as cluster:
        damaged_at_30(cluster)
        sink = Shelf()
        async with make_feeder(cluster, sink, on_poison="skip", max_records=1000) as feeder:
            await feeder.caught_up()
            assert feeder.stats().records == 95
        assert sink.ends == {AT: 30, OTHER: 40, TopicPartition("t", 2): 30}


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("remembers", [True, False])
@simulated(seeds=range(2), limit=600)
async def test_a_batch_is_of_so_many_bytes_however_much_comes_at_once(remembers: bool) -> None:
    async with world(2) as cluster:
        for partition in (0, 1):
            cluster.append("t", partition, 100, size=1000)  # one fetch brings it all
        sink, limit = Shelf(remembers=remembers), 20_000
        sizes: list[int] = []

        def seen(batch: FeedBatch) -> Collection[TopicPartition]:
            sizes.append(batch.size)
            return ()

        sink.refuses = seen
        async with make_feeder(cluster, sink, max_records=1000, max_bytes=limit) as feeder:
            await feeder.caught_up()
        assert max(sizes) <= limit
        assert len(sizes) < 20  # and there is no use in smaller ones
        assert sink.ends == {AT: 100, OTHER: 100}


@simulated(seeds=range(2), limit=600)
async def test_a_record_that_is_larger_than_a_batch_may_be_is_one() -> None:
    async with world() as cluster:
        cluster.append("t", 0, 3, size=1000)
        sink = Shelf()
        async with make_feeder(cluster, sink, max_bytes=500) as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(0, 1), (1, 2), (2, 3)]


@simulated(seeds=range(2), limit=600)
async def test_what_is_written_is_kept_by_nobody() -> None:
    """Written records are released before their offsets are committed to the group."""
    async with world(2, zero=20, one=20) as cluster:
        sink, reported = Shelf(), list[Mapping[TopicPartition, int]]()
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


def test_what_commits_before_it_is_written_is_refused() -> None:
    reader: Consumer[Any, Any] = Consumer(
        "t", bootstrap_servers="k:1", group_id="g", commit_policy="at_most_once"
    )
    with pytest.raises(ConfigError, match="Set `commit_policy='manual'`"):
        SparkFeeder(reader, Shelf())


def test_dead_letters_that_nobody_would_write_are_refused() -> None:
    dead_letter_records: dict[str, Any] = {
        "on_poison": "dead_letter",
        "dead_letter_topic": "letters",
    }
    reader = Consumer(
        "t", bootstrap_servers="k:1", group_id="g", commit_policy="manual", **dead_letter_records
    )
    with pytest.raises(ConfigError, match=r"no dead letters.* 'skip'"):
        SparkFeeder(reader, Shelf())


def test_a_name_that_nobody_would_use_is_refused() -> None:
    reader: Consumer[Any, Any] = Consumer(
        "t", bootstrap_servers="k:1", group_id="g", enable_auto_commit=False
    )
    with pytest.raises(ConfigError, match="`app` of a feeder needs `write`"):
        SparkFeeder(reader, Shelf(), app="orders")


@simulated(seeds=range(2), limit=600)
async def test_a_pattern_brings_no_topic_that_kafka_does_not_allow() -> None:
    """However a broker comes to name it: a sink makes files of such names."""
    async with world(records=5) as cluster:
        for name in ("../../elsewhere", ".."):
            cluster.add_topic(name, 1)
            cluster.append(name, 0, 5)
        sink = Shelf()
        reading = make_consumer(cluster, (), pattern=".*", **QUICK)
        async with SparkFeeder(reading, sink, max_records=10, max_wait_ms=50) as feeder:
            await feeder.caught_up()
        assert sink.ends == {AT: 5}
