"""Members of a group that a real Kafka coordinates, by the classic protocol."""

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
from tests.helpers import until
from tests.kafka_group.real import Following, member, the_generation, until_divided

ASSIGNORS = [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
async def test_two_members_split_a_topic(
    kafka: KafkaHandle, assignor: Callable[[], Assignor]
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    async with member(kafka.bootstrap_servers, group, topic, [assignor()]) as one:
        await until(lambda: one.numbers == {0, 1, 2, 3})
        async with member(kafka.bootstrap_servers, group, topic, [assignor()]) as two:
            await until_divided([one, two], {topic: 4})
            assert len(one.owned) == len(two.owned) == 2
            await two.leave()
            await until(lambda: one.numbers == {0, 1, 2, 3})
            assert not any(assignment.lost for assignment in one.history)
        given_up = [assignment for assignment in one.history if not assignment.partitions]
        assert bool(given_up) is not assignor().cooperative
        await one.leave()


async def test_a_member_that_dies_is_missed_after_its_session(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    async with member(kafka.bootstrap_servers, group, topic) as one:
        async with member(kafka.bootstrap_servers, group, topic) as two:
            await until_divided([one, two], {topic: 2})
        assert len(one.owned) == 1  # nobody knows yet
        await until(lambda: one.numbers == {0, 1})
        await one.leave()


async def test_a_member_whose_place_was_taken_away_loses_everything_and_comes_back(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    async with member(kafka.bootstrap_servers, group, topic) as one:
        await until(lambda: one.numbers == {0, 1})
        who, owned = one.membership.identity, frozenset(one.owned)
        assert who is not None
        async with one.coordinator.reached(Traffic.CONTROL) as connection:
            await connection.request(LeaveGroupRequest(group, who.member_id))
        await until(lambda: any(assignment.lost for assignment in one.history))
        assert [assignment.lost for assignment in one.history if assignment.lost] == [owned]
        await until(lambda: one.numbers == {0, 1})
        assert one.membership.identity is not None
        assert one.membership.identity.member_id != who.member_id
        await one.leave()


async def test_a_static_member_comes_back_without_a_rebalance(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    servers = kafka.bootstrap_servers
    async with member(servers, group, topic, group_instance_id="a") as one:
        async with member(servers, group, topic, group_instance_id="b") as two:
            await until_divided([one, two], {topic: 4})
            had = two.owned
            generation = the_generation(two)
            await two.leave()  # nothing is said: it is expected back
            assert two.membership.lost
        before = list(one.history)
        async with member(servers, group, topic, group_instance_id="b") as again:
            await until(lambda: again.owned == had)
            assert the_generation(again) == generation
            assert one.history == before
            # a second of the same name takes its place, and the first is told so
            async with member(servers, group, topic, group_instance_id="b") as other:
                await until(lambda: other.owned == had)
                await until(again.task.done)
                assert isinstance(again.failure, FencedInstanceId)
                assert again.membership.lost
                assert again.membership.identity is None


async def test_a_static_leader_comes_back_and_still_notices_growth(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    servers = kafka.bootstrap_servers
    async with member(servers, group, topic, group_instance_id="a") as one:
        await until(lambda: one.numbers == {0, 1})
        generation = the_generation(one)
    async with member(servers, group, topic, group_instance_id="a") as again:
        await until(lambda: again.numbers == {0, 1})
        assert the_generation(again) == generation
        await kafka.admin.add_partitions(topic, 3)
        await until(lambda: again.numbers == {0, 1, 2})


async def test_new_partitions_are_noticed_and_fresh(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    async with (
        member(kafka.bootstrap_servers, group, topic) as one,
        member(kafka.bootstrap_servers, group, topic) as two,
    ):
        await until_divided([one, two], {topic: 2})
        assert not any(assignment.fresh for assignment in [*one.history, *two.history])
        await kafka.admin.add_partitions(topic, 4)
        await until_divided([one, two], {topic: 4})
        fresh = one.history[-1].fresh | two.history[-1].fresh
        assert {partition.partition for partition in fresh} == {2, 3}
        await two.leave()
        await one.leave()


async def test_a_pattern_takes_new_topics_and_lets_go_of_deleted_ones(kafka: KafkaHandle) -> None:
    first, group = await kafka.topic(partitions=1), kafka.group()
    pattern = PatternSubscription(re.escape(first.rpartition("-")[0]) + r"-\d+")
    async with member(kafka.bootstrap_servers, group, pattern) as one:
        await until_divided([one], {first: 1})
        assert not one.history[-1].fresh
        second = await kafka.topic(partitions=2)
        await until_divided([one], {first: 1, second: 2})
        assert {partition.topic for partition in one.history[-1].fresh} == {second}
        await kafka.admin.delete_topic(first)
        await until_divided([one], {second: 2})
        await one.leave()


@pytest.mark.parametrize("assignor", [RangeAssignor, CooperativeStickyAssignor])
async def test_a_subscription_can_be_changed(
    kafka: KafkaHandle, assignor: Callable[[], Assignor]
) -> None:
    a, b, c = [await kafka.topic(partitions=1) for _ in range(3)]
    async with member(
        kafka.bootstrap_servers, kafka.group(), TopicSubscription([a, b]), [assignor()]
    ) as one:
        await until_divided([one], {a: 1, b: 1})
        one.membership.subscribe(TopicSubscription([b, c]))
        await until_divided([one], {b: 1, c: 1})
        kept = [TopicPartition(b, 0) in assignment.partitions for assignment in one.history]
        assert all(kept) is assignor().cooperative
        await one.leave()


async def test_a_group_moves_from_eager_to_cooperative_one_by_one(kafka: KafkaHandle) -> None:
    """Kafka's way: first all can do both, and do as eager ones do; then all are cooperative."""
    topic, group, servers = await kafka.topic(partitions=4), kafka.group(), kafka.bootstrap_servers
    both = [CooperativeStickyAssignor(), RangeAssignor()]
    async with (
        member(servers, group, topic, [RangeAssignor()]) as old,
        member(servers, group, topic, both) as new,
    ):
        await until_divided([old, new], {topic: 4})
        await old.leave()
        await until(lambda: new.numbers == {0, 1, 2, 3})
        assert any(not assignment.partitions for assignment in new.history)
        async with member(servers, group, topic, [CooperativeStickyAssignor()]) as newest:
            await until_divided([new, newest], {topic: 4})
            await newest.leave()
        await new.leave()


async def test_a_group_of_another_protocol_is_refused(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=1), kafka.group()
    async with member(kafka.bootstrap_servers, group, topic, [RangeAssignor()]) as one:
        await until(lambda: one.numbers == {0})
        async with member(kafka.bootstrap_servers, group, topic, [StickyAssignor()]) as two:
            await until(two.task.done)
            assert isinstance(two.failure, InconsistentGroupProtocol)
        await one.leave()


async def test_a_java_client_and_ours_share_a_group(kafka: KafkaHandle) -> None:
    """aiokafka speaks as Java does, and leads."""
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
        async with member(kafka.bootstrap_servers, group, topic, [assignor]) as ours:
            await until(lambda: len(ours.owned) == len(theirs.assignment()) == 2)
            assert ours.owned | theirs.assignment() == {TopicPartition(topic, n) for n in range(4)}
            await ours.leave()


async def test_what_others_give_up_is_not_waited_for_until_a_heartbeat_is_due(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    seldom = {"heartbeat_interval_ms": 500_000, "session_timeout_ms": 1_500_000}

    def joining() -> AbstractAsyncContextManager[Following]:
        assignors = [CooperativeStickyAssignor()]
        return member(kafka.bootstrap_servers, group, topic, assignors, **seldom)

    async with joining() as one:
        await until(lambda: one.numbers == {0, 1, 2, 3})
        async with joining() as two:

            def met() -> bool:
                one.membership.rejoin("somebody may be there")
                return bool(two.history)

            await until(met)
            await until_divided([one, two], {topic: 4})
            await two.leave()
        await one.leave()
