"""Members that report their racks, and the assignment of their leader, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_classic_group import open_member
from tests.support.helpers import until
from tests.support.real_classic_group import ClassicMember, generation_of

pytestmark = pytest.mark.fast

SEEDS = range(2)
NEAR = {"x": {0, 3}, "y": {1, 4}, "z": {2, 5}}
"""The partitions that have their only replica in each rack."""
ALTERNATING = [[0, 2, 4], [1, 3, 5]]
LONG = 60.0  # seconds in which a leader checks the racks several times


@asynccontextmanager
async def in_three_racks() -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1), brokers=3, racks=tuple(NEAR)) as cluster:
        cluster.add_topic("t", 6, replicas=1)
        yield cluster


async def until_near(first: ClassicMember, *others: ClassicMember) -> None:
    """Wait until each member owns the partitions of its rack, in the order of racks."""
    members = dict(zip(NEAR, (first, *others), strict=False))
    await until(lambda: {rack: member.numbers for rack, member in members.items()} == NEAR)


@pytest.mark.parametrize("kind", [RangeAssignor, StickyAssignor, CooperativeStickyAssignor])
@simulated(seeds=SEEDS)
async def test_members_read_partitions_of_their_rack(kind: Callable[[], Assignor]) -> None:
    async with (
        in_three_racks() as cluster,
        open_member(cluster, None, [kind()], client_rack="x") as x,
        open_member(cluster, None, [kind()], client_rack="y") as y,
        open_member(cluster, None, [kind()], client_rack="z") as z,
    ):
        await until_near(x, y, z)


def swap_racks(cluster: GroupCluster) -> None:
    """Swap the replicas of brokers 2 and 3."""
    for partition in cluster.view.topics["t"].partitions:
        node = {2: 3, 3: 2}.get(partition.leader, partition.leader)
        partition.replicas = partition.isr = (node,)
        partition.leader, partition.epoch = node, partition.epoch + 1


@simulated(seeds=SEEDS)
async def test_a_leader_with_a_rack_rebalances_when_replicas_move() -> None:
    async with in_three_racks() as cluster, open_member(cluster, client_rack="x") as leader:
        await until(lambda: len(leader.owned) == 6)
        async with (
            open_member(cluster, client_rack="y") as y,
            open_member(cluster, client_rack="z") as z,
        ):
            await until_near(leader, y, z)
            swap_racks(cluster)
            await until(lambda: (y.numbers, z.numbers) == (NEAR["z"], NEAR["y"]))
            before = generation_of(leader)
            await asyncio.sleep(LONG)
            assert generation_of(leader) == before


@simulated(seeds=SEEDS)
async def test_a_leader_without_a_rack_ignores_moved_replicas_as_in_java() -> None:
    async with in_three_racks() as cluster, open_member(cluster) as leader:
        await until(lambda: len(leader.owned) == 6)
        async with open_member(cluster, client_rack="y") as y:
            await until(lambda: len(leader.owned) == len(y.owned) == 3)
            before = generation_of(leader)
            swap_racks(cluster)
            await asyncio.sleep(LONG)
            assert generation_of(leader) == before


@simulated(seeds=SEEDS)
async def test_a_stopped_broker_keeps_its_rack() -> None:
    async with in_three_racks() as cluster, open_member(cluster, client_rack="x") as member:
        await until(lambda: len(member.owned) == 6)
        async with (
            open_member(cluster, client_rack="y") as two,
            open_member(cluster, client_rack="z") as z,
        ):
            await until_near(member, two, z)
            before = generation_of(member)
            down = next(node for node in (2, 3) if node != cluster.coordinator("g"))
            cluster.kill(down)
            await asyncio.sleep(LONG)
            assert down not in cluster.view.endpoints
            cluster.start(down)
            await asyncio.sleep(LONG)
            assert generation_of(member) == before


@simulated(seeds=SEEDS)
async def test_round_robin_ignores_racks() -> None:
    async with (
        in_three_racks() as cluster,
        open_member(cluster, None, [RoundRobinAssignor()], client_rack="x") as member,
        open_member(cluster, None, [RoundRobinAssignor()], client_rack="x") as two,
    ):
        await until(lambda: sorted((sorted(member.numbers), sorted(two.numbers))) == ALTERNATING)
