"""The fake coordinator of classic groups while its broker is frozen."""

import asyncio

import pytest

from asyncconsumer.testing.fake_kafka.group_state import Phase
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_classic_group import GROUP, fake_cluster, open_member
from tests.support.helpers import until

pytestmark = pytest.mark.fast


@simulated(seeds=range(5))
async def test_a_former_coordinator_does_not_store_its_group_after_a_thaw() -> None:
    async with fake_cluster(brokers=2) as cluster:
        async with open_member(cluster, group_instance_id="i") as static:
            await until(lambda: len(static.owned) == 4)
        node, stale = cluster.coordinator(GROUP), cluster.groups[GROUP]
        cluster.freeze(node)
        await asyncio.sleep(60)  # the session expires, which the frozen broker handles later
        cluster.move_coordinator(GROUP)
        stored = cluster.storage.groups[GROUP]
        cluster.thaw(node)
        assert cluster.storage.groups[GROUP] is stored
        assert len(stored.members) == 1
        assert stale.phase is Phase.UNLOADED
        async with open_member(cluster, group_instance_id="i") as static:
            await until(lambda: len(static.owned) == 4)
            assert cluster.groups[GROUP].generation == stored.generation
