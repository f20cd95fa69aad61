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
from tests.consumer.on_fakes import consumer
from tests.helpers import until
from tests.spark.shelf import (
    AT,
    HEARTBEAT,
    OTHER,
    QUICK,
    REBALANCE,
    UNKNOWN_MEMBER,
    Shelf,
    feeder,
    group_has,
    world,
)

pytestmark = pytest.mark.fast


def damage(cluster: GroupCluster, base: int, place: TopicPartition) -> None:
    """Spoil the batch that begins there."""
    log = cluster.view.partition(place).log
    log.batches = [
        one._replace(data=one.data[:-3] + b"???") if one.base == base else one
        for one in log.batches
    ]


def fetched(one: SparkFeeder, offset: int) -> bool:
    return one._consumer.progress()[AT].fetched == offset


async def told(one: SparkFeeder, offset: int) -> bool:
    return await group_has(one) == offset


@simulated(seeds=range(3), limit=600)
async def test_a_write_that_ends_late_tells_the_group_nothing_any_more() -> None:
    """What came back to us meanwhile, and was written, stays told."""
    async with world(records=30) as cluster:
        sink, gate = Shelf(remembers=False), asyncio.Event()
        sink.gates[AT] = gate
        async with feeder(cluster, sink, max_in_flight=4) as one:
            await until(lambda: one.stats().in_flight == 3)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: len(sink.written) >= 3)
            cluster.append("t", 0, 70)
            await until(lambda: len(sink.written) == 10)
            await one.caught_up()
            gate.set()
            await until(lambda: len(sink.written) == 11)
            await asyncio.sleep(1)
            assert await group_has(one) == 100


@simulated(seeds=range(3), limit=600)
async def test_who_is_thrown_out_while_a_revoke_waits_goes_on_when_it_is_back() -> None:
    async with world(records=20) as cluster:
        sink, gate = Shelf(remembers=False), asyncio.Event()
        sink.gates[AT] = gate
        async with feeder(cluster, sink, listener_timeout_ms=30_000) as one:
            await until(lambda: one.stats().in_flight == 2)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: not one._ours.lanes)
            cluster.fail_next(HEARTBEAT, UNKNOWN_MEMBER)
            await asyncio.sleep(1)
            gate.set()
            await until(lambda: AT in one._ours.lanes)
            await one.caught_up()
            assert sink.ranges()[-1] == (10, 20)
            assert await group_has(one) == 20


@simulated(seeds=range(3), limit=600)
async def test_a_batch_that_cannot_be_promised_is_read_again_and_nothing_lands_behind_it() -> None:
    async with world(records=20) as cluster:
        sink = Shelf(remembers=False)
        async with feeder(cluster, sink) as one:
            make, refused = one._ours.promises.make, list[FeedBatch]()

            async def not_the_first(batch: FeedBatch) -> Collection[TopicPartition]:
                if refused:
                    return await make(batch)
                refused.append(batch)
                return batch.parts.keys()

            one._ours.promises.make = not_the_first  # type: ignore[method-assign]
            await one.caught_up()
        assert sink.ranges() == [(0, 10), (10, 20)]


@simulated(seeds=range(3), limit=600)
async def test_one_hung_write_does_not_hold_up_other_partitions_once_its_own_is_given_up() -> None:
    async with world(2, zero=30) as cluster:
        sink, gate = Shelf(), asyncio.Event()
        sink.gates[AT] = gate
        async with feeder(cluster, sink) as one:
            await until(lambda: one.stats().in_flight == 2)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: one.stats().abandoned > 0)
            cluster.append("t", 1, 50)
            await until(lambda: sink.ends.get(OTHER) == 50)
            assert len(one._ours.lanes) == 2
            await until(lambda: sink.ends.get(AT) == 30)
            sink.refuses = lambda batch: [
                place for place, part in batch.parts.items() if part.start != sink.ends.get(place)
            ]
            gate.set()
            await until(lambda: one.stats().refused == 1)


@simulated(seeds=range(3), limit=600)
async def test_what_was_refused_by_a_sink_that_has_nothing_is_read_again() -> None:
    async with world(records=60) as cluster:
        sink, refused = Shelf(), list[FeedBatch]()

        def the_first(batch: FeedBatch) -> Collection[TopicPartition]:
            refused.append(batch)
            return batch.parts.keys() if len(refused) == 1 else ()

        sink.refuses = the_first
        async with feeder(cluster, sink) as one:
            await until(lambda: len(refused) > 1)
            await one.caught_up()
        assert sink.ranges() == [(at, at + 10) for at in range(0, 60, 10)]


@simulated(seeds=range(3), limit=600)
async def test_caught_up_waits_for_what_is_being_taken_up() -> None:
    async with world(records=20) as cluster:
        sink = Shelf()
        async with feeder(cluster, sink, listener_timeout_ms=30_000) as one:
            await one.caught_up()
            sink.seconds_to_load = 5.0
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: not one._ours.lanes)
            cluster.append("t", 0, 100)
            await until(lambda: AT in one._consumer.assignment)
            assert not one._ours.lanes
            await one.caught_up()
            assert sink.ends == {AT: 120}


@pytest.mark.parametrize("records", [0, 20])
@simulated(seeds=range(3), limit=600)
async def test_a_sink_that_does_not_tell_its_offsets_in_time_ends_it(records: int) -> None:
    """Also where nothing is there to read: nobody would ever hear of it."""
    async with world(records=records) as cluster:
        sink = Shelf()
        sink.seconds_to_load = 5.0
        with pytest.raises(SinkFailed, match=r"tell its offsets.* listener_timeout_ms"):
            async with feeder(cluster, sink) as one, asyncio.timeout(60):
                await one.caught_up()
        assert not sink.written


@simulated(seeds=range(3), limit=600)
async def test_nobody_waits_for_a_feeder_of_a_consumer_that_has_its_partitions_already() -> None:
    async with world(records=20) as cluster, consumer(cluster, **QUICK) as reader:
        await reader.wait_assigned()
        sink = Shelf()
        sink.seconds_to_load = 5.0
        async with SparkFeeder(reader, sink, max_wait_ms=50) as one:
            await one.caught_up()
        assert sink.ends == {AT: 20}


class Down(Shelf):
    """It fails as often as told, and writes then."""

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
    async with world(records=written) as cluster, consumer(cluster, **QUICK) as reader:
        sink = Down(remembers=remembers)
        quick: dict[str, Any] = {"max_records": 10, "max_wait_ms": 50, "retries": 0}
        if written:
            async with SparkFeeder(reader, sink, **quick) as one:
                await one.caught_up()
        sink.errors.append(OSError("the store is down"))
        cluster.append("t", 0, 100)
        with pytest.raises(SinkFailed, match="is down"):
            async with SparkFeeder(reader, sink, **quick) as one:
                await one.run()
        cluster.append("t", 0, 10)
        async with SparkFeeder(reader, sink, **quick) as one:
            await one.caught_up()
        assert sink.ranges() == [(at, at + 10) for at in range(0, written + 110, 10)]


@pytest.mark.parametrize("retries", [0, 1])
@simulated(seeds=range(3), limit=600)
async def test_a_cancellation_within_a_sink_fails_as_anything_else(retries: int) -> None:
    """It awaits a task that somebody else cancelled. Nothing goes on behind what failed."""
    async with world(records=30) as cluster:
        sink = Down(asyncio.CancelledError(), asyncio.CancelledError(), remembers=False)
        with pytest.raises(SinkFailed, match=rf"write .*, {retries + 1} times: CancelledError"):
            async with feeder(cluster, sink, retries=retries) as one:
                await one.run()
        assert not sink.written
        sink.errors = [asyncio.CancelledError()]
        async with feeder(cluster, sink, retries=1) as one:
            await one.caught_up()
            assert one.stats().retries == 1
        assert sink.ranges() == [(0, 10), (10, 20), (20, 30)]


@simulated(seeds=range(3), limit=600)
async def test_behind_a_batch_that_was_cancelled_itself_nothing_is_written() -> None:
    async with world(records=30) as cluster:
        sink = Shelf()
        sink.gates[AT] = asyncio.Event()
        async with feeder(cluster, sink) as one:
            await until(lambda: one.stats().in_flight == 2)
            writing = [each for each in asyncio.all_tasks() if each.get_name().startswith("write")]
            min(writing, key=asyncio.Task.get_name).cancel()
            await until(lambda: one.stats().in_flight == 0)
            await asyncio.sleep(1)
        assert not sink.written


async def test_a_thread_may_meet_a_cancellation() -> None:
    asking = SinkCaller("sink", threads=1, retries=0, randomness=Random(1))
    elsewhere = Future[None]()
    elsewhere.cancel()
    with pytest.raises(SinkFailed, match="CancelledError"):
        await asking.ask("write", elsewhere.result)
    await asking.once(elsewhere.result)
    await asking.end(Grace(10.0))


@simulated(seeds=range(3), limit=600)
async def test_what_was_read_before_there_was_a_feeder_is_not_its_to_feed() -> None:
    async with world() as cluster, consumer(cluster, **QUICK) as reader:
        cluster.append("t", 0, 20, batches=2)
        async for records in reader.batches(max_records=5):
            assert len(records) == 5
            break
        await reader.commit()
        sink = Down(OSError("the store is down"))
        with pytest.raises(SinkFailed, match="is down"):
            async with SparkFeeder(reader, sink, max_wait_ms=50, retries=0) as one:
                await one.run()
        async with SparkFeeder(reader, sink, max_wait_ms=50) as one:
            await one.caught_up()
        assert sink.ranges() == [(5, 20)]


# --- the end ----------------------------------------------------------------------------------


@simulated(seeds=range(3), limit=600)
async def test_closing_takes_one_grace_whatever_hangs() -> None:
    """It is waited for the batch, and then for its thread: not twice as long."""
    async with world(records=10) as cluster, consumer(cluster, **QUICK) as reader:
        sink, now = Shelf(), asyncio.get_running_loop().time
        sink.gates[AT] = asyncio.Event()
        async with SparkFeeder(reader, sink, max_records=10, grace_ms=60_000) as one:
            one._asking._threads.end = asyncio.Event().wait  # type: ignore[assignment]
            await until(lambda: one.stats().in_flight == 1)
            closing = now()  # on virtual time
        assert now() == pytest.approx(closing + 60)


@simulated(seeds=range(3), limit=600)
async def test_nobody_waits_in_the_end_for_what_was_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(records=30) as cluster:
        sink = Shelf()
        sink.gates[AT] = asyncio.Event()
        async with feeder(cluster, sink) as one:
            await until(lambda: one.stats().in_flight == 2)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: sink.ends.get(AT) == 30)
        assert "within the grace" not in caplog.text


# --- what is gone, and what never was ---------------------------------------------------------


async def fed_up_to_100(cluster: GroupCluster, sink: Shelf) -> None:
    """And then the log goes on from 200 to 300."""
    for _ in range(10):
        cluster.append("t", 0, 10)
    async with feeder(cluster, sink) as one:
        await one.caught_up()
    for _ in range(20):
        cluster.append("t", 0, 10)
    cluster.advance_log_start(AT, 200)


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@simulated(seeds=range(2), limit=600)
async def test_what_is_gone_before_it_was_fed_is_told_of(reset: str) -> None:
    async with world() as cluster:
        sink = Shelf()
        await fed_up_to_100(cluster, sink)
        for _ in range(2):  # and again
            with pytest.raises(RecordsDeleted, match=r"up to offset 100.* fail_on_data_loss"):
                async with feeder(cluster, sink, auto_offset_reset=reset) as one:
                    await one.run()
        assert sink.ends == {AT: 100}


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@simulated(seeds=range(3), limit=600)
async def test_what_was_read_before_the_rest_went_is_written(reset: str, fail: bool) -> None:
    """It is nowhere else: some is being written, some collected, some is not even in a batch."""
    async with world() as cluster:
        sink, gate = Shelf(), asyncio.Event()
        sink.gates[AT] = gate
        options: dict[str, Any] = {"auto_offset_reset": reset, "fail_on_data_loss": fail}
        sink.ends[AT] = 0
        async with feeder(cluster, sink, max_wait_ms=60_000, **options) as one:
            await until(lambda: AT in one._consumer.progress())
            for count in (25, 20, 11):  # one fetch each
                end = cluster.append("t", 0, count).stop
                await until(partial(fetched, one, end))
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
                    await one.run()
            else:
                await one.caught_up()
        assert sink.ranges()[:5] == [(at, at + 10) for at in range(0, 50, 10)]
        assert sink.ends == {AT: 56 if fail else 120}
        assert one.stats().records == (56 if fail else 76)


@simulated(seeds=range(3), limit=600)
async def test_who_waits_for_what_is_gone_is_told() -> None:
    """Also if something else is written meanwhile, and nothing is left of what was to be read."""
    async with world(2) as cluster:
        sink, gate = Shelf(), asyncio.Event()
        await fed_up_to_100(cluster, sink)
        sink.gates[OTHER] = gate
        sink.ends[OTHER] = 0
        cluster.append("t", 1, 10)
        async with feeder(cluster, sink, auto_offset_reset="latest") as one:
            await until(lambda: one.stats().in_flight == 1)
            asyncio.get_running_loop().call_later(5, gate.set)
            with pytest.raises(RecordsDeleted, match="up to offset 100"):
                await one.caught_up()
        assert sink.ends == {AT: 100, OTHER: 10}


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@simulated(seeds=range(2), limit=600)
async def test_what_is_left_is_fed_to_who_may_lose_the_rest(reset: str) -> None:
    async with world() as cluster:
        sink = Shelf()
        await fed_up_to_100(cluster, sink)
        options: dict[str, Any] = {"auto_offset_reset": reset, "fail_on_data_loss": False}
        async with feeder(cluster, sink, **options) as one:
            await until(lambda: one.stats().records == 100)
        assert sink.ranges()[10] == (100, 210)
        assert sink.ends == {AT: 300}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@simulated(seeds=range(2), limit=600)
async def test_nothing_of_a_topic_made_anew_follows_what_was_fed_of_the_old_one(reset: str) -> None:
    async with world(records=30) as cluster:
        sink = Shelf()
        sink.ends[AT] = 0
        async with feeder(cluster, sink, auto_offset_reset=reset) as one:
            await one.caught_up()
            cluster.recreate_topic("t")
            cluster.append("t", 0, 50)
            await asyncio.sleep(20)
            cluster.append("t", 0, 10)  # of which `latest` would begin with the first
            with pytest.raises(SinkOffsetConflict, match=r"up to offset 30.* created anew"):
                await one.run()
        assert sink.ranges() == [(0, 10), (10, 20), (20, 30)]


def test_who_is_told_of_another_topic_is_told_which_names_to_change() -> None:
    """By its group alone nothing is written: Delta has more of that txn_app_id already."""
    said = str(SinkOffsetConflict("write()", AT, 30, 0))
    assert "app=... of the feeder" in said
    assert "another group" in said
    assert "app=... of a DeltaSink" in said


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@simulated(seeds=range(2), limit=600)
async def test_where_a_sink_begins_at_the_beginning_nothing_may_be_gone(reset: str) -> None:
    async with world() as cluster:
        sink = Shelf()
        sink.ends[AT] = 0
        async with feeder(cluster, sink, auto_offset_reset=reset) as one:
            await one.caught_up()
            cluster.recreate_topic("t")  # of which there was nothing
            cluster.append("t", 0, 5)
            await until(lambda: sink.ends == {AT: 5})
        sink.ends[AT] = 0
        cluster.append("t", 0, 5)
        cluster.advance_log_start(AT, 5)
        with pytest.raises(RecordsDeleted, match="up to offset 0"):
            async with feeder(cluster, sink, auto_offset_reset=reset) as one:
                await one.run()


@simulated(seeds=range(2), limit=600)
async def test_a_sink_that_knows_where_to_go_on_needs_no_offset_of_the_group() -> None:
    async with world(records=20) as cluster:
        sink = Shelf()
        sink.ends[AT] = 10
        async with feeder(cluster, sink, auto_offset_reset="none") as one:
            await one.caught_up()
        assert sink.ranges() == [(10, 20)]


@simulated(seeds=range(2), limit=600)
async def test_where_the_log_ends_before_what_was_fed_nothing_is_gone() -> None:
    async with world(records=20) as cluster:
        sink = Shelf()
        sink.ends[AT] = 30
        with pytest.raises(OffsetUnavailable, match="the log ends at 20"):
            async with feeder(cluster, sink, auto_offset_reset="none") as one:
                await one.run()
        assert not sink.written


@simulated(seeds=range(2), limit=600)
async def test_what_is_no_record_is_no_lag() -> None:
    """Behind the records there are those of a transaction that was aborted, and markers."""
    async with world() as cluster:
        cluster.append_transaction("t", 0, 5, commit=True)
        cluster.append_transaction("t", 0, 5, commit=False)
        sink = Shelf()
        reader = consumer(cluster, **QUICK, isolation_level="read_committed")
        async with SparkFeeder(reader, sink, max_wait_ms=50) as one:
            await one.caught_up()
            assert one.stats().lag == 0
            assert sink.ends == {AT: 5}
            await until(lambda: told(one, 12))
            cluster.append_transaction("t", 0, 3, commit=True)
            await one.caught_up()
            assert sink.ranges() == [(0, 5), (5, 15)]


@simulated(seeds=range(2), limit=600)
async def test_a_batch_behind_what_is_no_record_is_promised_as_well() -> None:
    """Behind each transaction there is a marker, of which the group is told meanwhile."""
    async with world() as cluster:
        cluster.append_transaction("t", 0, 5, commit=True)
        sink, gate = Shelf(remembers=False), asyncio.Event()
        async with feeder(cluster, sink) as one:
            await one.caught_up()
            await until(lambda: told(one, 6))
            sink.gates[AT] = gate
            cluster.append_transaction("t", 0, 3, commit=True)
            await until(lambda: not sink.gates)  # it is being written
            kept = await group_has(one)
            assert int(kept) == 5
            assert kept.metadata.startswith("asyncconsumer batch until 9 of ")
            gate.set()
            await until(lambda: told(one, 10))
            assert one.stats().lag == 0
        assert sink.ranges() == [(0, 5), (5, 9)]


def damaged_at_30(cluster: GroupCluster) -> None:
    """Three partitions: the one in the middle has thirty good records, and five behind damage."""
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
            async with feeder(cluster, sink, **options) as one:
                await one.run()
        assert sink.ranges(OTHER) == [(0, 30)]
        with pytest.raises(CorruptRecords, match="at offset 30"):
            async with feeder(cluster, sink, **options) as one:
                await one.run()
        assert sink.ranges(OTHER) == [(0, 30)]


@simulated(seeds=range(3), limit=600)
async def test_who_skips_what_is_damaged_goes_on_behind_it() -> None:
    async with world(3) as cluster:
        damaged_at_30(cluster)
        sink = Shelf()
        async with feeder(cluster, sink, on_poison="skip", max_records=1000) as one:
            await one.caught_up()
            assert one.stats().records == 95
        assert sink.ends == {AT: 30, OTHER: 40, TopicPartition("t", 2): 30}


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("remembers", [True, False])
@simulated(seeds=range(2), limit=600)
async def test_a_batch_is_of_so_many_bytes_however_much_comes_at_once(remembers: bool) -> None:
    async with world(2) as cluster:
        for partition in (0, 1):
            cluster.append("t", partition, 100, size=1000)  # one fetch brings it all
        sink, most = Shelf(remembers=remembers), 20_000
        sizes: list[int] = []

        def seen(batch: FeedBatch) -> Collection[TopicPartition]:
            sizes.append(batch.size)
            return ()

        sink.refuses = seen
        async with feeder(cluster, sink, max_records=1000, max_bytes=most) as one:
            await one.caught_up()
        assert max(sizes) <= most
        assert len(sizes) < 20  # and there is no use in smaller ones
        assert sink.ends == {AT: 100, OTHER: 100}


@simulated(seeds=range(2), limit=600)
async def test_a_record_that_is_larger_than_a_batch_may_be_is_one() -> None:
    async with world() as cluster:
        cluster.append("t", 0, 3, size=1000)
        sink = Shelf()
        async with feeder(cluster, sink, max_bytes=500) as one:
            await one.caught_up()
        assert sink.ranges() == [(0, 1), (1, 2), (2, 3)]


@simulated(seeds=range(2), limit=600)
async def test_what_is_written_is_kept_by_nobody() -> None:
    """Neither by its lane, nor while the group is told of it."""
    async with world(2, zero=20, one=20) as cluster:
        sink, told = Shelf(), list[Mapping[TopicPartition, int]]()
        async with feeder(cluster, sink, max_records=5) as one:
            gate = asyncio.Event()

            async def slow(ends: Mapping[TopicPartition, int]) -> None:
                told.append(ends)
                await gate.wait()

            one._ours.landed = slow  # type: ignore[method-assign]
            await until(lambda: sink.ends == {AT: 20, OTHER: 20})
            gc.collect()
            assert len(told) >= 8
            assert not [each for each in gc.get_objects() if isinstance(each, FeedBatch)]
            gate.set()


def test_what_commits_before_it_is_written_is_refused() -> None:
    reader: Consumer[Any, Any] = Consumer(
        "t", bootstrap_servers="k:1", group_id="g", commit_policy="at_most_once"
    )
    with pytest.raises(ConfigError, match="give the consumer commit_policy='manual'"):
        SparkFeeder(reader, Shelf())


def test_letters_that_nobody_would_write_are_refused() -> None:
    letters: dict[str, Any] = {"on_poison": "dead_letter", "dead_letter_topic": "letters"}
    reader = Consumer("t", bootstrap_servers="k:1", group_id="g", commit_policy="manual", **letters)
    with pytest.raises(ConfigError, match=r"no dead letters.* 'skip'"):
        SparkFeeder(reader, Shelf())


def test_a_name_that_nobody_would_use_is_refused() -> None:
    reader: Consumer[Any, Any] = Consumer(
        "t", bootstrap_servers="k:1", group_id="g", enable_auto_commit=False
    )
    with pytest.raises(ConfigError, match="app is for write"):
        SparkFeeder(reader, Shelf(), app="orders")


@simulated(seeds=range(2), limit=600)
async def test_a_pattern_brings_no_topic_that_kafka_does_not_allow() -> None:
    """However a broker comes to name it: a sink makes files of such names."""
    async with world(records=5) as cluster:
        for name in ("../../elsewhere", ".."):
            cluster.add_topic(name, 1)
            cluster.append(name, 0, 5)
        sink = Shelf()
        reading = consumer(cluster, (), pattern=".*", **QUICK)
        async with SparkFeeder(reading, sink, max_records=10, max_wait_ms=50) as one:
            await one.caught_up()
        assert sink.ends == {AT: 5}
