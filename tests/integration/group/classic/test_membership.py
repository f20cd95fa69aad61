"""Classic members on a real coordinator."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from asyncconsumer.errors import FencedInstanceId, InconsistentGroupProtocol
from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.group.subscription import PatternSubscription, TopicSubscription
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.classic_group import LeaveGroupRequest
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import TopicPartition
from tests.support.helpers import until
from tests.support.real_classic_group import (
    ClassicMember,
    generation_of,
    open_member,
    until_divided,
)

ASSIGNORS = [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda member: member.name)
async def test_two_members_split_a_topic(
    kafka: KafkaHandle, assignor: Callable[[], Assignor]
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    async with open_member(kafka.bootstrap_servers, group, topic, [assignor()]) as member:
        await until(lambda: member.numbers == {0, 1, 2, 3})
        async with open_member(kafka.bootstrap_servers, group, topic, [assignor()]) as two:
            await until_divided([member, two], {topic: 4})
            assert len(member.owned) == len(two.owned) == 2
            await two.leave()
            await until(lambda: member.numbers == {0, 1, 2, 3})
            assert not any(assignment.lost for assignment in member.history)
        given_up = [assignment for assignment in member.history if not assignment.partitions]
        assert bool(given_up) is not assignor().cooperative
        await member.leave()


async def test_partitions_of_a_dead_member_are_reassigned_after_its_session(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    async with open_member(kafka.bootstrap_servers, group, topic) as member:
        async with open_member(kafka.bootstrap_servers, group, topic) as two:
            await until_divided([member, two], {topic: 2})
        assert len(member.owned) == 1  # the session has not expired yet
        await until(lambda: member.numbers == {0, 1})
        await member.leave()


async def test_a_removed_member_loses_its_partitions_and_rejoins(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    async with open_member(kafka.bootstrap_servers, group, topic) as member:
        await until(lambda: member.numbers == {0, 1})
        identity, owned = member.membership.identity, frozenset(member.owned)
        assert identity is not None
        async with member.coordinator.reached(Traffic.CONTROL) as connection:
            await connection.request(LeaveGroupRequest(group, identity.member_id))
        await until(lambda: any(assignment.lost for assignment in member.history))
        assert [assignment.lost for assignment in member.history if assignment.lost] == [owned]
        await until(lambda: member.numbers == {0, 1})
        assert member.membership.identity is not None
        assert member.membership.identity.member_id != identity.member_id
        await member.leave()


async def test_a_static_member_returns_without_a_rebalance(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    servers = kafka.bootstrap_servers
    async with open_member(servers, group, topic, group_instance_id="a") as member:
        async with open_member(servers, group, topic, group_instance_id="b") as two:
            await until_divided([member, two], {topic: 4})
            had = two.owned
            generation = generation_of(two)
            await two.leave()  # sends no LeaveGroup request
            assert two.membership.lost
        before = list(member.history)
        async with open_member(servers, group, topic, group_instance_id="b") as again:
            await until(lambda: again.owned == had)
            assert generation_of(again) == generation
            assert member.history == before
            # a second member with this instance id replaces the first, which is fenced
            async with open_member(servers, group, topic, group_instance_id="b") as other:
                await until(lambda: other.owned == had)
                await until(again.task.done)
                assert isinstance(again.failure, FencedInstanceId)
                assert again.membership.lost
                assert again.membership.identity is None


async def test_a_returned_static_leader_notices_added_partitions(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    servers = kafka.bootstrap_servers
    async with open_member(servers, group, topic, group_instance_id="a") as member:
        await until(lambda: member.numbers == {0, 1})
        generation = generation_of(member)
    async with open_member(servers, group, topic, group_instance_id="a") as again:
        await until(lambda: again.numbers == {0, 1})
        assert generation_of(again) == generation
        await kafka.admin.add_partitions(topic, 3)
        await until(lambda: again.numbers == {0, 1, 2})


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
async def test_partitions_added_during_the_absence_of_a_static_leader(
    kafka: KafkaHandle, assignor: Callable[[], Assignor]
) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    servers, options = kafka.bootstrap_servers, {"session_timeout_ms": 30_000}
    async with open_member(
        servers, group, topic, [assignor()], group_instance_id="a", **options
    ) as leader:
        await until(lambda: leader.numbers == {0, 1, 2})
        async with open_member(
            servers, group, topic, [assignor()], group_instance_id="b", **options
        ) as follower:
            await until_divided([leader, follower], {topic: 3})
            generation = generation_of(follower)
            await leader.leave()
            async with open_member(
                servers, group, topic, [assignor()], group_instance_id="a", **options
            ) as returned:
                await until_divided([returned, follower], {topic: 3})
                assert generation_of(returned) == generation
                await returned.leave()
            await kafka.admin.add_partitions(topic, 4)
            async with open_member(
                servers, group, topic, [assignor()], group_instance_id="a", **options
            ) as returned:
                await until_divided([returned, follower], {topic: 4})


async def test_added_partitions_are_assigned_as_fresh(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    async with (
        open_member(kafka.bootstrap_servers, group, topic) as member,
        open_member(kafka.bootstrap_servers, group, topic) as two,
    ):
        await until_divided([member, two], {topic: 2})
        assert not any(assignment.fresh for assignment in [*member.history, *two.history])
        await kafka.admin.add_partitions(topic, 4)
        await until_divided([member, two], {topic: 4})
        fresh = member.history[-1].fresh | two.history[-1].fresh
        assert {partition.partition for partition in fresh} == {2, 3}
        await two.leave()
        await member.leave()


async def test_a_pattern_assigns_new_topics_and_revokes_deleted_ones(kafka: KafkaHandle) -> None:
    first, group = await kafka.topic(partitions=1), kafka.group()
    pattern = PatternSubscription(re.escape(first.rpartition("-")[0]) + r"-\d+")
    async with open_member(kafka.bootstrap_servers, group, pattern) as member:
        await until_divided([member], {first: 1})
        assert not member.history[-1].fresh
        second = await kafka.topic(partitions=2)
        await until_divided([member], {first: 1, second: 2})
        assert {partition.topic for partition in member.history[-1].fresh} == {second}
        await kafka.admin.delete_topic(first)
        await until_divided([member], {second: 2})
        await member.leave()


@pytest.mark.parametrize("assignor", [RangeAssignor, CooperativeStickyAssignor])
async def test_a_subscription_can_be_changed(
    kafka: KafkaHandle, assignor: Callable[[], Assignor]
) -> None:
    a, b, c = [await kafka.topic(partitions=1) for _ in range(3)]
    async with open_member(
        kafka.bootstrap_servers, kafka.group(), TopicSubscription([a, b]), [assignor()]
    ) as member:
        await until_divided([member], {a: 1, b: 1})
        member.membership.subscribe(TopicSubscription([b, c]))
        await until_divided([member], {b: 1, c: 1})
        retained = [TopicPartition(b, 0) in assignment.partitions for assignment in member.history]
        assert all(retained) is assignor().cooperative
        await member.leave()


async def test_a_group_migrates_from_eager_to_cooperative_rebalances(kafka: KafkaHandle) -> None:
    """Check Kafka's migration: first all members support both protocols, then only cooperative."""
    topic, group, servers = await kafka.topic(partitions=4), kafka.group(), kafka.bootstrap_servers
    both = [CooperativeStickyAssignor(), RangeAssignor()]
    async with (
        open_member(servers, group, topic, [RangeAssignor()]) as old,
        open_member(servers, group, topic, both) as new,
    ):
        await until_divided([old, new], {topic: 4})
        await old.leave()
        await until(lambda: new.numbers == {0, 1, 2, 3})
        assert any(not assignment.partitions for assignment in new.history)
        async with open_member(servers, group, topic, [CooperativeStickyAssignor()]) as newest:
            await until_divided([new, newest], {topic: 4})
            await newest.leave()
        await new.leave()


async def test_a_member_without_a_common_assignor_is_refused(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=1), kafka.group()
    async with open_member(kafka.bootstrap_servers, group, topic, [RangeAssignor()]) as member:
        await until(lambda: member.numbers == {0})
        async with open_member(kafka.bootstrap_servers, group, topic, [StickyAssignor()]) as two:
            await until(two.task.done)
            assert isinstance(two.failure, InconsistentGroupProtocol)
        await member.leave()


async def test_a_member_of_aiokafka_as_leader_shares_partitions(kafka: KafkaHandle) -> None:
    """Check a group whose leader is a member of aiokafka, which has Java's assignors."""
    topic, group = await kafka.topic(partitions=4), kafka.group()
    theirs = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        heartbeat_interval_ms=300,
        session_timeout_ms=6_000,
    )
    async with theirs:
        assignor = RoundRobinAssignor()
        async with open_member(kafka.bootstrap_servers, group, topic, [assignor]) as tested:
            await until(lambda: len(tested.owned) == len(theirs.assignment()) == 2)
            assert tested.owned | theirs.assignment() == {
                TopicPartition(topic, n) for n in range(4)
            }
            await tested.leave()


async def test_revoked_partitions_are_assigned_before_a_heartbeat_is_due(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    seldom = {"heartbeat_interval_ms": 500_000, "session_timeout_ms": 1_500_000}

    def joining() -> AbstractAsyncContextManager[ClassicMember]:
        assignors = [CooperativeStickyAssignor()]
        return open_member(kafka.bootstrap_servers, group, topic, assignors, **seldom)

    async with joining() as member:
        await until(lambda: member.numbers == {0, 1, 2, 3})
        async with joining() as two:

            def has_joined() -> bool:
                member.membership.rejoin("a member may have joined")
                return bool(two.history)

            await until(has_joined)
            await until_divided([member, two], {topic: 4})
            await two.leave()
        await member.leave()
