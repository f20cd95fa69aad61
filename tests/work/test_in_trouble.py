"""Apps on a fake Kafka, on virtual time: what they must bear from brokers, hosts and users."""

import asyncio
from random import Random
from typing import Any

import pytest

from asyncconsumer import Record, TopicPartition
from asyncconsumer.errors import OffsetMetadataTooLarge
from asyncconsumer.model import Offset
from asyncconsumer.testing.clock import simulated
from asyncconsumer.testing.cluster.groups import GroupCluster
from asyncconsumer.work.metadata import decode
from tests.work.world import app, until

pytestmark = pytest.mark.fast
A = TopicPartition("t", 0)


# --- a broker that takes little text beside an offset --------------------------------------------


class Terse(GroupCluster):
    """Its brokers have an `offset.metadata.max.bytes` of less than we would like."""

    longest = 100

    def _keep(
        self, wanted: dict[str, Any], topic: str, row: dict[str, Any], code: int
    ) -> dict[str, int]:
        too_long = len(row["metadata"] or "") > self.longest
        return super()._keep(wanted, topic, row, 12 if too_long else code)


@pytest.mark.parametrize("longest", [100, 0])
@simulated(seeds=range(2))
async def test_offsets_are_committed_though_the_broker_takes_little_text(longest: int) -> None:
    """Every third record is not finished: there is much to tell."""
    async with Terse(Random(1)) as cluster:
        cluster.longest = longest
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 2_000, batches=10)
        one = app(cluster, shutdown_grace_ms=100)
        chance = Random(3)

        @one.handler("t", ordering="none", concurrency=2_000)
        async def handle(record: Record) -> None:
            if record.offset >= 500 and chance.random() < 0.3:
                await asyncio.Event().wait()

        async with one:
            await until(lambda: one.consumer._rebalancer.finished().get(A, 0) >= 500)
            [done] = [Offset.of(at) for at in one.consumer._rebalancer.finished().values()]
            assert len(done.metadata) > 100
            assert await one.consumer.commit() == {A: int(done)}
        row = cluster.shelf.offsets["g"]["t", 0]
        assert row["offset"] == done
        told, all_of_it = decode(done, row["metadata"]), decode(done, done.metadata)
        assert len(row["metadata"]) <= longest
        assert bool(told) == bool(longest)
        assert list(told) == list(all_of_it)[: len(told)]


@simulated(seeds=range(2))
async def test_a_text_of_the_users_is_not_cut() -> None:
    async with Terse(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 10)
        one = app(cluster, auto_commit_interval_ms=10**6)

        @one.handler("t")
        async def handle(record: Record) -> None: ...

        async with one:
            await one.consumer.assigned()
            with pytest.raises(OffsetMetadataTooLarge):
                await one.consumer.commit({A: Offset(5, metadata="x" * 101)})
            assert "g" not in cluster.shelf.offsets
