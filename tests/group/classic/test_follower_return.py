"""A static member that returns to its generation, and partitions without an owner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import pytest

from asyncconsumer.group.assignors import CooperativeStickyAssignor
from asyncconsumer.group.subscription import PatternSubscription, TopicSubscription
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.group.classic.test_leader_return import all_assigned, static
from tests.support.fake_classic_group import fake_cluster, now, open_member
from tests.support.helpers import until
from tests.support.real_classic_group import ClassicMember, generation_of

pytestmark = pytest.mark.fast

SEEDS = range(3)
DESCRIBE = 15
GROUP_AUTHORIZATION_FAILED = 30
SOON, LATE = 10.0, 400.0  # seconds: a few checks, and more than the rebalance timeout
SEVERAL_CHECKS = 10.0
UNWATCHED: dict[str, Any] = {"metadata_refresh_ms": 1_000_000}  # a member that checks nothing


@asynccontextmanager
async def cooperative(
    cluster: GroupCluster, instance_id: str, topic: str = "t", **options: Any
) -> AsyncIterator[ClassicMember]:
    options = {"metadata_refresh_ms": 2_000, "group_instance_id": instance_id, **options}
    subscription, assignors = TopicSubscription([topic]), [CooperativeStickyAssignor()]
    async with open_member(cluster, subscription, assignors, **options) as following:
        yield following


class Revoking(NamedTuple):
    """A group whose follower "b" revoked two of four partitions for "c", and did not rejoin."""

    cluster: GroupCluster
    leader: ClassicMember  # "a", which reads another topic
    b: ClassicMember
    c: ClassicMember


@asynccontextmanager
async def revoking(leader: dict[str, Any] | None = None) -> AsyncIterator[Revoking]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(fake_cluster(partitions=4))
        cluster.add_topic("other", 1)
        a = await stack.enter_async_context(cooperative(cluster, "a", "other", **leader or {}))
        await until(lambda: len(a.owned) == 1)
        b = await stack.enter_async_context(cooperative(cluster, "b"))
        await until(lambda: len(b.owned) == 4)
        await asyncio.sleep(SEVERAL_CHECKS)
        b.delay = 100.0
        c = await stack.enter_async_context(cooperative(cluster, "c", **UNWATCHED))
        await until(lambda: len(b.owned) == 2 and bool(c.history))
        yield Revoking(cluster, a, b, c)


@asynccontextmanager
async def interrupted(leader: dict[str, Any]) -> AsyncIterator[Revoking]:
    """A group whose follower "b" died after it revoked partitions."""
    async with revoking(leader) as group:
        group.b.task.cancel()
        await group.b.membership.leave()  # static members send no LeaveGroup
        yield group


@pytest.mark.parametrize(
    ("leader", "follower"),
    [({}, UNWATCHED), (UNWATCHED, {})],
    ids=["the leader notices", "the follower notices"],
)
@simulated(seeds=SEEDS)
async def test_revoked_partitions_are_assigned_after_the_return(
    leader: dict[str, Any], follower: dict[str, Any]
) -> None:
    async with (
        interrupted(leader) as group,
        cooperative(group.cluster, "b", **follower) as returned,
    ):
        started = now()
        await until(all_assigned(group.cluster, group.leader, group.c, returned))
        assert now() - started < SOON
        assert len(group.c.owned) == 2
        generation = generation_of(returned)
        await asyncio.sleep(LATE)
        assert generation_of(returned) == generation


@simulated(seeds=SEEDS)
async def test_a_leader_without_descriptions_waits_for_the_rebalance_timeout() -> None:
    async with interrupted({"rebalance_timeout_ms": 20_000}) as group:
        group.cluster.fail_next(DESCRIBE, GROUP_AUTHORIZATION_FAILED, times=1000)
        async with cooperative(group.cluster, "b", **UNWATCHED) as returned:
            started = now()
            await until(all_assigned(group.cluster, group.leader, group.c, returned))
            assert 15 < now() - started < 25


@simulated(seeds=SEEDS)
async def test_a_slow_revocation_is_not_disturbed() -> None:
    """No member returned, so the leader waits."""
    async with revoking() as group:
        generation = generation_of(group.leader)
        await asyncio.sleep(90)
        assert generation_of(group.leader) == generation
        await asyncio.sleep(20)
        assert all_assigned(group.cluster, group.leader, group.b, group.c)()


# --- another subscription ------------------------------------------------------------------------


@pytest.mark.parametrize("instance_id", ["a", "b"], ids=["leader", "follower"])
@simulated(seeds=SEEDS)
async def test_a_returned_member_does_not_read_unsubscribed_topics(instance_id: str) -> None:
    async with fake_cluster(partitions=4) as cluster:
        cluster.add_topic("other", 4)
        both = TopicSubscription(["t", "other"])
        async with AsyncExitStack() as stack:
            members = {
                name: await stack.enter_async_context(static(cluster, name, both)) for name in "ab"
            }
            await until(all_assigned(cluster, *members.values()))
            returning = members.pop(instance_id)
            (stays,) = members.values()
            returning.task.cancel()
            await returning.membership.leave()
            async with static(cluster, instance_id, TopicSubscription(["t"])) as returned:
                await until(all_assigned(cluster, returned, stays))
                owned = {tp.topic for share in returned.history for tp in share.partitions}
                assert owned == {"t"}
                generation = generation_of(returned)
                await asyncio.sleep(SEVERAL_CHECKS)
                assert generation_of(returned) == generation


@pytest.mark.parametrize("instance_id", ["a", "b"], ids=["leader", "follower"])
@pytest.mark.parametrize(
    "after",
    [TopicSubscription(["t", "other"]), PatternSubscription(".*")],
    ids=["topics", "pattern"],
)
@simulated(seeds=SEEDS)
async def test_a_returned_member_reads_newly_subscribed_topics(
    instance_id: str, after: TopicSubscription | PatternSubscription
) -> None:
    async with fake_cluster(partitions=4) as cluster, AsyncExitStack() as stack:
        members = {name: await stack.enter_async_context(static(cluster, name)) for name in "ab"}
        await until(all_assigned(cluster, *members.values()))
        await asyncio.sleep(SEVERAL_CHECKS)
        cluster.add_topic("other", 4)
        returning = members.pop(instance_id)
        (stays,) = members.values()
        returning.task.cancel()
        await returning.membership.leave()
        async with static(cluster, instance_id, after) as returned:
            await until(all_assigned(cluster, returned, stays))
