"""Stalled partitions: one report, and one more after they move again."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.config import FetchConfig
from asyncconsumer.events import Recovered, Stalled
from asyncconsumer.fetch.cursor import Cursor, FetchTarget
from asyncconsumer.fetch.stalls import Observation, Stalls
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.worlds.fetch import engine_on

if TYPE_CHECKING:
    from asyncconsumer.fetch.fetcher import Fetcher

pytestmark = pytest.mark.fast

AT = TopicPartition("t", 0)


def unplaced() -> Cursor:
    return Cursor.of(AT, FetchTarget(Channel(Budget(1000)), 5))


def kinds(news: list[Stalled | Recovered]) -> list[type]:
    return [type(item) for item in news]


def test_a_stall_and_its_end_are_each_reported_once() -> None:
    stalls, cursor = Stalls(10.0), unplaced()
    sights = [Observation(cursor, None, [])]
    assert stalls.check(sights, 0.0) == []
    assert stalls.check(sights, 9.9) == []
    (stalled,) = stalls.check(sights, 10.0)
    assert isinstance(stalled, Stalled)
    assert (stalled.partition, stalled.seconds) == (AT, 10.0)
    assert stalls.check(sights, 11.0) == []
    assert stalls.current[AT].seconds == 11.0
    cursor.advance(6, 0)
    assert stalls.check(sights, 12.0) == [Recovered(AT, 12.0)]
    assert stalls.current == {}
    assert stalls.check(sights, 21.9) == []  # the last observed progress was at 12
    assert kinds(stalls.check(sights, 22.0)) == [Stalled]


def test_paused_partitions_recover_and_removed_partitions_are_forgotten() -> None:
    stalls, cursor = Stalls(10.0), unplaced()
    sights = [Observation(cursor, None, [])]
    stalls.check(sights, 0.0)
    assert kinds(stalls.check(sights, 10.0)) == [Stalled]
    cursor.paused = True
    assert kinds(stalls.check(sights, 11.0)) == [Recovered]
    cursor.paused = False
    assert stalls.check(sights, 20.0) == []  # the time starts again
    assert kinds(stalls.check(sights, 30.0)) == [Stalled]
    assert stalls.check([], 31.0) == []
    assert stalls.current == {}


def test_a_partition_with_an_unknown_log_end_is_stalled() -> None:
    stalls, cursor = Stalls(10.0), unplaced()
    sights = [Observation(cursor, cast("Fetcher", SimpleNamespace(blocked_reason=None)), [])]
    stalls.check(sights, 0.0)
    assert kinds(stalls.check(sights, 10.0)) == [Stalled]  # the broker was never asked
    cursor.set_log_end(5)
    assert kinds(stalls.check(sights, 11.0)) == [Recovered]  # no record is left to read


@simulated(range(2))
async def test_a_slow_reader_does_not_cause_a_stall() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", 1)
        for _ in range(4):
            cluster.append(*AT, 1000, batches=1)
        one_batch = FetchConfig(max_partition_fetch_bytes=2000)
        async with engine_on(cluster, one_batch) as manager:
            channel = manager.channel()
            manager.reconcile({AT: FetchTarget(channel, 0)})
            records = aiter(Stream(channel))
            for _ in range(30):  # each batch is read for longer than the stall timeout
                await anext(records)
                await asyncio.sleep(1)
            assert AT in channel
            assert manager.events.counts["stalled"] == 0
            await asyncio.sleep(15)
            assert manager.events.counts["stalled"] == 1


def test_a_partition_at_its_log_end_without_room_is_stalled() -> None:
    budget = Budget(1000)
    cursor = Cursor.of(AT, FetchTarget(Channel(budget), 5))
    cursor.set_log_end(5)
    sights = [Observation(cursor, cast("Fetcher", SimpleNamespace(blocked_reason=None)), [])]
    stalls = Stalls(10.0)
    stalls.check(sights, 0.0)
    assert stalls.check(sights, 20.0) == []
    budget.take(1000)  # by other channels
    stalls.check(sights, 30.0)
    (stalled,) = stalls.check(sights, 50.0)
    assert isinstance(stalled, Stalled)
    assert "no room" in stalled.reason
