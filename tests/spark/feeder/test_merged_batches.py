"""Batches that wait for the same partition, and go into the sink together if it wants that."""

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
    Shelf,
    group_has,
    make_feeder,
    world,
)

pytestmark = pytest.mark.fast


class Pile(Shelf):
    """A memory sink that merges batches."""

    def __init__(self, *, remembers: bool = True) -> None:
        super().__init__(remembers=remembers)
        self.takes_more = True
        self.trouble: Exception | None = None
        self.discarded = list[object]()
        self.most_parts = 0
        self.slow: asyncio.Event | None = None  # the first batch of the other partition waits
        self.bad: dict[int, asyncio.Event] = {}  # what begins there fails, when it is time

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
    """Records of both partitions for one batch after another, of which none lands meanwhile."""
    for number, records in enumerate(batches, 1):
        for partition, count in enumerate(records):
            cluster.append("t", partition, count)
        await until(partial(has_sent, feeder, number))


def follow_each_other(ranges: list[tuple[int, int]]) -> bool:
    return all(first[1] == other[0] for first, other in pairwise(ranges))


@asynccontextmanager
async def behind_a_gate(
    cluster: GroupCluster, sink: Pile, batches: int
) -> AsyncIterator[SparkFeeder]:
    """Open a feeder with `batches` batches in flight, the first of which was just written."""
    gate = sink.gates[AT] = asyncio.Event()
    async with make_feeder(cluster, sink, max_in_flight=batches) as feeder:
        await until(partial(has_sent, feeder, batches))
        gate.set()
        yield feeder


@simulated(seeds=range(3), limit=600)
async def test_what_waits_for_the_same_partition_lands_together() -> None:
    async with world(records=65) as cluster:
        sink = Pile()
        async with behind_a_gate(cluster, sink, 4) as feeder:
            await feeder.caught_up()
            stats = feeder.stats()
        assert sink.ranges()[:2] == [(0, 10), (10, 40)]
        assert follow_each_other(sink.ranges())
        assert sink.ends == {AT: 65}
        assert stats.records == 65
        assert stats.in_flight == stats.bytes_in_flight == 0


@simulated(seeds=range(3), limit=600)
async def test_the_group_commits_all_that_landed_together() -> None:
    async with world(records=30) as cluster:
        sink = Pile()
        async with behind_a_gate(cluster, sink, 3) as feeder:
            await feeder.caught_up()
            assert sink.ranges() == [(0, 10), (10, 30)]
            await until(lambda: not feeder._writes._writes)
            assert await group_has(feeder) == 30


@simulated(seeds=range(3), limit=600)
async def test_what_lands_together_still_counts_as_so_many() -> None:
    """Else there would be more in memory than `max_in_flight` allows."""
    async with world(records=200) as cluster:
        sink, first, second = Pile(), asyncio.Event(), asyncio.Event()
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
        assert follow_each_other(sink.ranges())


@pytest.mark.parametrize("remembers", [True, False])
@simulated(seeds=range(3), limit=600)
async def test_a_sink_may_want_them_one_by_one(remembers: bool) -> None:
    """A prepared batch stays one batch, whatever the sink requests."""
    async with world(records=40) as cluster:
        sink = Pile(remembers=remembers)
        sink.takes_more = not remembers
        async with behind_a_gate(cluster, sink, 4) as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(offset, offset + 10) for offset in range(0, 40, 10)]


@simulated(seeds=range(3), limit=600)
async def test_what_cannot_be_joined_lands_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    async with world(records=40) as cluster:
        sink = Pile()
        sink.trouble = OSError("not today")
        async with behind_a_gate(cluster, sink, 4) as feeder:
            await feeder.caught_up()
        assert sink.ranges() == [(offset, offset + 10) for offset in range(0, 40, 10)]
        assert "failed to merge two batches" in caplog.text


@simulated(seeds=range(3), limit=600)
async def test_a_sink_that_wants_partitions_apart_has_them_joined_apart() -> None:
    async with world(2) as cluster:
        sink, gates = Pile(), {AT: asyncio.Event(), OTHER: asyncio.Event()}
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
async def test_what_is_refused_together_is_read_again_from_its_beginning() -> None:
    async with world(records=60) as cluster:
        sink, refused = Pile(), list[FeedBatch]()

        def the_second(batch: FeedBatch) -> Collection[TopicPartition]:
            if batch.parts[AT].start != 10 or refused:
                return ()
            refused.append(batch)
            return batch.parts.keys()

        sink.refuses = the_second
        async with behind_a_gate(cluster, sink, 3) as feeder:
            await until(lambda: bool(refused))
            await feeder.caught_up()
        assert refused[0].parts[AT].end == 30
        assert follow_each_other(sink.ranges())
        assert sink.ends == {AT: 60}
        assert sum(end - start for start, end in sink.ranges()) == 60


@simulated(seeds=range(3), limit=600)
async def test_behind_what_failed_together_nothing_is_written() -> None:
    async with world(records=60) as cluster:
        sink, gate = Pile(), asyncio.Event()

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
        assert follow_each_other(sink.ranges())
        assert sink.ends == {AT: 60}


@simulated(seeds=range(3), limit=600)
async def test_nothing_is_joined_over_what_could_not_be_prepared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The partition of that ends there; the other one goes on."""
    async with world(2) as cluster:
        sink, gate, other_gate = Pile(), asyncio.Event(), asyncio.Event()
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
        assert "failed to merge two batches" not in caplog.text  # nobody tried


@simulated(seeds=range(3), limit=600)
async def test_nothing_overtakes_what_is_ahead_of_it_in_another_partition() -> None:
    async with world(2) as cluster:
        sink, gates = Pile(), {AT: asyncio.Event(), OTHER: asyncio.Event()}
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
async def test_nothing_overtakes_what_is_not_prepared_yet() -> None:
    async with world(2) as cluster:
        sink, gate = Pile(), asyncio.Event()
        sink.gates[AT] = gate
        sink.slow = asyncio.Event()
        async with make_feeder(cluster, sink, max_in_flight=9, max_wait_ms=1000) as feeder:
            await send(cluster, feeder, [(10, 0), (10, 0), (0, 10), (0, 10)])
            gate.set()
            await until(lambda: sink.ends.get(AT) == 20)
            assert not sink.ranges(OTHER)
            sink.slow.set()
            await feeder.caught_up()
        assert follow_each_other(sink.ranges(OTHER))
        assert sink.ends == {AT: 20, OTHER: 20}


@simulated(seeds=range(3), limit=600)
async def test_what_is_being_written_already_is_not_taken_along() -> None:
    async with world(2) as cluster:
        sink, gates = Pile(), {AT: asyncio.Event(), OTHER: asyncio.Event()}
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
async def test_what_was_taken_along_is_left_to_the_sink_when_its_partition_goes() -> None:
    """The merged batch may be written or not: it is neither discarded nor written alone."""
    async with world(records=30) as cluster:
        sink, first, second = Pile(), asyncio.Event(), asyncio.Event()
        sink.gates[AT] = first
        async with make_feeder(cluster, sink, max_in_flight=3) as feeder:
            await until(partial(has_sent, feeder, 3))
            sink.gates[AT] = second
            first.set()
            await until(lambda: AT not in sink.gates)
            cluster.fail_next(HEARTBEAT, REBALANCE)
            await until(lambda: len(sink.ranges()) > 1)  # by the next partition feed
            assert not sink.discarded
            assert feeder.stats().abandoned == 0
            second.set()
            await until(lambda: (10, 30) in sink.ranges()[-1:])
            assert not sink.discarded


@simulated(seeds=range(20), limit=600)
async def test_whatever_a_group_does_every_record_is_there_once() -> None:
    async with world(2, zero=100, one=100) as cluster:
        sink, chance = Pile(), Random(4)
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
            assert follow_each_other(ranges)
            assert sum(end - start for start, end in ranges) == 220
        assert any(end - start > 10 for _, start, end in sink.written)  # some were joined


def test_what_does_not_follow_is_not_joined() -> None:
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
