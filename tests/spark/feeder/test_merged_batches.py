"""Batches that wait for the same partition, and are written together if the sink supports it."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from random import Random

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.errors import SinkFailed
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.spark.sinks.protocol import PreparedBatch
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.feeder_tables import batch, joined, numbers
from tests.support.helpers import until
from tests.support.memory_sink import (
    AT,
    HEARTBEAT,
    OTHER,
    REBALANCE,
    MemorySink,
    group_has,
    make_feeder,
    world,
)

pytestmark = pytest.mark.fast


class MergingSink(MemorySink):
    """A memory sink that merges batches."""

    def __init__(self, *, remembers: bool = True) -> None:
        super().__init__(remembers=remembers)
        self.takes_more = True
        self.trouble: Exception | None = None
        self.discarded = list[object]()
        self.most_parts = 0
        self.slow: asyncio.Event | None = None  # delays the first batch of the other partition
        self.bad: dict[int, asyncio.Event] = {}  # offsets whose batch fails, after an event

    async def prepare(self, batch: FeedBatch) -> str:
        if self.slow is not None and OTHER in batch.parts and batch.parts[OTHER].start == 0:
            await self.slow.wait()
        for part in batch.parts.values():
            if (late := self.bad.get(part.start)) is not None:
                await late.wait()
                raise OSError("no room")
        return batch.id

    def join_batches(self, first: PreparedBatch, then: PreparedBatch) -> PreparedBatch | None:
        if self.trouble is not None:
            raise self.trouble
        if not self.takes_more:
            return None
        return PreparedBatch(first.batch.joined(then.batch), f"{first.prepared}+{then.prepared}")

    async def publish(self, batch: FeedBatch, prepared: object) -> Collection[TopicPartition]:
        assert batch.rows == batch.table.num_rows
        self.most_parts = max(self.most_parts, len(batch.parts))
        return await super().publish(batch, prepared)

    async def discard(self, prepared: object) -> None:
        self.discarded.append(prepared)


def has_sent(feeder: SparkFeeder, batches: int) -> bool:
    return feeder.stats().in_flight == batches


async def send(cluster: GroupCluster, feeder: SparkFeeder, batches: list[tuple[int, int]]) -> None:
    """Append records of both partitions for one batch after another. None is written meanwhile."""
    for number, records in enumerate(batches, 1):
        for partition, count in enumerate(records):
            cluster.append("t", partition, count)
        await until(partial(has_sent, feeder, number))


def are_contiguous(ranges: list[tuple[int, int]]) -> bool:
    return all(first[1] == other[0] for first, other in pairwise(ranges))


@asynccontextmanager
async def open_behind_gate(
    cluster: GroupCluster, sink: MergingSink, batches: int
) -> AsyncIterator[SparkFeeder]:
    """Open a feeder with `batches` batches in flight, the first of which was just written."""
    gate = sink.gates[AT] = asyncio.Event()
    async with make_feeder(cluster, sink, max_in_flight=batches) as feeder:
        await until(partial(has_sent, feeder, batches))
        gate.set()
        yield feeder


@simulated(seeds=range(3), limit=600)
async def test_batches_waiting_for_one_partition_are_merged() -> None:
    async with world(records=65) as cluster:
        sink = MergingSink()
        async with open_behind_gate(cluster, sink, 4) as feeder:
            await feeder.caught_up()
            stats = feeder.stats()
        assert sink.ranges()[:2] == [(0, 10), (10, 40)]
        assert are_contiguous(sink.ranges())
        assert sink.ends == {AT: 65}
        assert stats.records == 65
        assert stats.in_flight == stats.bytes_in_flight == 0


@simulated(seeds=range(3), limit=600)
async def test_the_end_of_a_merged_batch_is_committed() -> None:
    async with world(records=30) as cluster:
        sink = MergingSink()
        async with open_behind_gate(cluster, sink, 3) as feeder:
            await feeder.caught_up()
            assert sink.ranges() == [(0, 10), (10, 30)]
            await until(lambda: not feeder._writes._writes)
            assert await group_has(feeder) == 30


@simulated(seeds=range(3), limit=600)
async def test_merged_batches_count_separately_for_max_in_flight() -> None:
    """Check the limit, which bounds memory."""
    async with world(records=200) as cluster:
        sink, first, second = MergingSink(), asyncio.Event(), asyncio.Event()
        sink.gates[AT] = first
        async with make_feeder(cluster, sink, max_in_flight=3) as feeder:
            await until(lambda: feeder.stats().in_flight == 3)
            sink.gates[AT] = second
            first.set()
            await until(lambda: AT not in sink.gates)
            await asyncio.sleep(1)
            stats = feeder.stats()
            assert stats.in_flight == 3
            assert sink.ranges() == [(0, 10)]
            second.set()
            await feeder.caught_up()
        assert sink.ranges()[1] == (10, 30)
        assert are_contiguous(sink.ranges())


@pytest.mark.parametrize("remembers", [True, False])
@simulated(seeds=range(3), limit=600)
async def test_batches_are_not_merged_if_the_sink_refuses(remembers: bool) -> None:
    """Check also that a batch with a write intent is not merged."""
    async with world(records=40) as cluster:
        sink = MergingSink(remembers=remembers)
        sink.takes_more = not remembers
        async with open_behind_gate(cluster, sink, 4) as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(offset, offset + 10) for offset in range(0, 40, 10)]


@simulated(seeds=range(3), limit=600)
async def test_batches_are_written_separately_if_merging_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(records=40) as cluster:
        sink = MergingSink()
        sink.trouble = OSError("not today")
        async with open_behind_gate(cluster, sink, 4) as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(offset, offset + 10) for offset in range(0, 40, 10)]
        assert "failed to merge two batches" in caplog.text


@simulated(seeds=range(3), limit=600)
async def test_a_sink_with_separate_partitions_gets_merged_batches_of_one() -> None:
    async with world(2) as cluster:
        sink, gates = MergingSink(), {AT: asyncio.Event(), OTHER: asyncio.Event()}
        sink.apart = True
        sink.gates.update(gates)
        async with make_feeder(cluster, sink, max_in_flight=9, max_wait_ms=1000) as feeder:
            for number in range(1, 4):
                cluster.append("t", 0, 10)
                cluster.append("t", 1, 10)
                await until(partial(has_sent, feeder, 2 * number))
            for gate in gates.values():
                gate.set()
            await feeder.caught_up()
        assert sink.ranges(AT) == sink.ranges(OTHER) == [(0, 10), (10, 30)]
        assert sink.most_parts == 1


@simulated(seeds=range(3), limit=600)
async def test_a_refused_merged_batch_is_read_again_from_its_start() -> None:
    async with world(records=60) as cluster:
        sink, refused = MergingSink(), list[FeedBatch]()

        def refuse_the_second(batch: FeedBatch) -> Collection[TopicPartition]:
            if batch.parts[AT].start != 10 or refused:
                return ()
            refused.append(batch)
            return batch.parts.keys()

        sink.refuses = refuse_the_second
        async with open_behind_gate(cluster, sink, 3) as feeder:
            await until(lambda: bool(refused))
            await feeder.caught_up()
        assert refused[0].parts[AT].end == 30
        assert are_contiguous(sink.ranges())
        assert sink.ends == {AT: 60}
        assert sum(end - start for start, end in sink.ranges()) == 60


@simulated(seeds=range(3), limit=600)
async def test_no_batch_is_written_after_a_failed_merged_one() -> None:
    async with world(records=60) as cluster:
        sink, gate = MergingSink(), asyncio.Event()

        def fails(batch: FeedBatch) -> Collection[TopicPartition]:
            if batch.parts[AT].start == 10:
                raise OSError("the store is down")
            return ()

        sink.refuses = fails
        sink.gates[AT] = gate
        with pytest.raises(SinkFailed, match="is down"):  # noqa: PT012
            async with make_feeder(cluster, sink, max_in_flight=3, retries=0) as feeder:
                await until(lambda: feeder.stats().in_flight == 3)
                gate.set()
                await feeder.run()
        assert sink.ranges() == [(0, 10)]
        assert feeder.stats().in_flight == 0
        sink.refuses = lambda _: ()
        async with make_feeder(cluster, sink) as feeder:
            await feeder.caught_up()
        assert are_contiguous(sink.ranges())
        assert sink.ends == {AT: 60}


@simulated(seeds=range(3), limit=600)
async def test_batches_are_not_merged_across_one_that_was_not_prepared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Check that the failed partition ends before the gap, and the other one continues."""
    async with world(2) as cluster:
        sink, gate, other_gate = MergingSink(), asyncio.Event(), asyncio.Event()
        sink.bad = {15: other_gate}
        sink.gates[AT] = gate
        feeder = make_feeder(cluster, sink, max_in_flight=9, max_wait_ms=1000, retries=0)
        with pytest.raises(SinkFailed, match="no room"):  # noqa: PT012
            async with feeder:
                await send(cluster, feeder, [(10, 0), (5, 5), (10, 0), (5, 5)])
                other_gate.set()
                await until(lambda: sink.ends.get(OTHER) == 10)
                gate.set()
                await until(lambda: sink.ends.get(AT) == 10)
                await feeder.run()
        assert sink.ranges(AT) == [(0, 10)]
        assert sink.ranges(OTHER) == [(0, 5), (5, 10)]
        assert "failed to merge two batches" not in caplog.text  # merging was not tried


@simulated(seeds=range(3), limit=600)
async def test_a_batch_of_two_partitions_waits_for_both() -> None:
    async with world(2) as cluster:
        sink, gates = MergingSink(), {AT: asyncio.Event(), OTHER: asyncio.Event()}
        sink.gates.update(gates)
        async with make_feeder(cluster, sink, max_in_flight=9, max_wait_ms=1000) as feeder:
            await send(cluster, feeder, [(10, 0), (0, 10), (0, 10), (5, 5)])
            gates[OTHER].set()
            await until(lambda: sink.ends.get(OTHER) == 20)
            await asyncio.sleep(1)
            assert not sink.ranges(AT)
            gates[AT].set()
            await feeder.caught_up()
        assert sink.ranges(AT) == [(0, 10), (10, 15)]
        assert sink.ranges(OTHER) == [(0, 10), (10, 20), (20, 25)]


@simulated(seeds=range(3), limit=600)
async def test_a_batch_waits_for_an_earlier_one_that_is_not_prepared() -> None:
    async with world(2) as cluster:
        sink, gate = MergingSink(), asyncio.Event()
        sink.gates[AT] = gate
        sink.slow = asyncio.Event()
        async with make_feeder(cluster, sink, max_in_flight=9, max_wait_ms=1000) as feeder:
            await send(cluster, feeder, [(10, 0), (10, 0), (0, 10), (0, 10)])
            gate.set()
            await until(lambda: sink.ends.get(AT) == 20)
            assert not sink.ranges(OTHER)
            sink.slow.set()
            await feeder.caught_up()
        assert are_contiguous(sink.ranges(OTHER))
        assert sink.ends == {AT: 20, OTHER: 20}


@simulated(seeds=range(3), limit=600)
async def test_a_batch_whose_write_has_started_is_not_merged() -> None:
    async with world(2) as cluster:
        sink, gates = MergingSink(), {AT: asyncio.Event(), OTHER: asyncio.Event()}
        sink.gates.update(gates)
        async with make_feeder(cluster, sink, max_in_flight=9, max_wait_ms=1000) as feeder:
            await send(cluster, feeder, [(10, 0), (10, 0), (0, 10)])
            await until(lambda: not sink.gates)
            gates[AT].set()
            await until(lambda: sink.ends.get(AT) == 20)
            gates[OTHER].set()
            await feeder.caught_up()
        assert sink.ranges(OTHER) == [(0, 10)]


@simulated(seeds=range(3), limit=600)
async def test_a_merged_batch_of_a_lost_partition_is_not_discarded() -> None:
    """Check that the merged batch is neither discarded nor written separately."""
    async with world(records=30) as cluster:
        sink, first, second = MergingSink(), asyncio.Event(), asyncio.Event()
        sink.gates[AT] = first
        async with make_feeder(cluster, sink, max_in_flight=3) as feeder:
            await until(partial(has_sent, feeder, 3))
            sink.gates[AT] = second
            first.set()
            await until(lambda: AT not in sink.gates)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: len(sink.ranges()) > 1)  # written by the next partition feed
            assert not sink.discarded
            assert feeder.stats().abandoned == 0
            second.set()
            await until(lambda: (10, 30) in sink.ranges()[-1:])
            assert not sink.discarded


@simulated(seeds=range(20), limit=600)
async def test_each_record_is_written_once_during_random_rebalances() -> None:
    async with world(2, zero=100, one=100) as cluster:
        sink, chance = MergingSink(), Random(4)
        sink.refuses = lambda batch: [
            place for place, part in batch.parts.items() if part.start != sink.ends.get(place, 0)
        ]
        publish = sink.publish

        async def slow(batch: FeedBatch, prepared: object) -> Collection[TopicPartition]:
            await asyncio.sleep(chance.random())
            return await publish(batch, prepared)

        sink.publish = slow  # type: ignore[method-assign]
        async with make_feeder(cluster, sink, max_in_flight=4):
            for _ in range(6):
                await asyncio.sleep(chance.random() * 2)
                cluster.fail_next(HEARTBEAT, REBALANCE)
                cluster.append("t", 0, 20)
                cluster.append("t", 1, 20)
            await until(lambda: sink.ends == {AT: 220, OTHER: 220})
        for place in (AT, OTHER):
            ranges = sorted(sink.ranges(place))
            assert are_contiguous(ranges)
            assert sum(end - start for start, end in ranges) == 220
        assert any(end - start > 10 for _, start, end in sink.written)  # some batches were merged


def test_joined_needs_contiguous_batches() -> None:
    first = joined(batch("t", 0, 0, [1, 2]), batch("t", 1, 7, [3]))
    both = first.joined(joined(batch("t", 0, 2, [4]), batch("t", 2, 0, [5])))
    assert {tp: (part.start, part.end) for tp, part in both.parts.items()} == {
        AT: (0, 3),
        OTHER: (7, 8),
        TopicPartition("t", 2): (0, 1),
    }
    assert numbers(both.table) == [1, 2, 3, 4, 5]
    assert both.rows == 5
    with pytest.raises(ValueError, match=r"t-0-0+4-0+5 does not start where t-0-0+0-0+2 ends"):
        first.joined(batch("t", 0, 4, [6]))
