"""KIP-848 members on a real coordinator."""

import asyncio
from math import inf
from random import Random
from typing import Any

import pytest

from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.errors import (
    ConsumerProtocolUnsupported,
    FencedInstanceId,
    InvalidRegularExpression,
    UnsupportedAssignor,
)
from asyncconsumer.group.subscription import PatternSubscription, TopicSubscription
from asyncconsumer.net.pool import Traffic
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.protocol.consumer_group import STATIC_LEAVE_EPOCH, ConsumerGroupHeartbeatRequest
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle, KafkaWithZooKeeper
from asyncconsumer.testing.servers import SASL_PLAIN_UNENCRYPTED, Kafka
from asyncconsumer.types import MemberIdentity, TopicPartition
from tests.support.helpers import until
from tests.support.kip848_members import Follower, open_member, partitions, split


@pytest.mark.parametrize("assignor", ["uniform", "range", None])
async def test_partitions_are_divided_when_members_join_and_leave(
    kafka: KafkaHandle, assignor: str | None
) -> None:
    topic, group, servers = await kafka.topic(partitions=5), kafka.group(), kafka.bootstrap_servers
    async with open_member(servers, group, [topic], group_remote_assignor=assignor) as member:
        await until(lambda: split(topic, 5, member))
        assert member.membership.identity is not None
        before = set(member.owned)
        async with open_member(servers, group, [topic], group_remote_assignor=assignor) as two:
            await until(lambda: split(topic, 5, member, two))
            # partitions that were not revoked were in every assignment
            assert all(
                member.owned <= set(assignment.partitions) <= before
                for assignment in member.assignments
            )
            assert not member.lost
        assert two.membership.lost
        assert two.membership.deadline == -inf
        assert two.membership.identity is None
        assert two.membership.heartbeat is None
        await until(lambda: split(topic, 5, member))


async def test_a_revoked_partition_is_assigned_after_its_acknowledgement(
    kafka: KafkaHandle,
) -> None:
    topic, group, servers = await kafka.topic(partitions=2), kafka.group(), kafka.bootstrap_servers
    async with open_member(servers, group, [topic]) as member:
        await until(lambda: split(topic, 2, member))
        member.may_acknowledge.clear()
        async with open_member(servers, group, [topic]) as two:
            await until(lambda: len(member.owned) == 1)
            await until(lambda: two.membership.identity is not None)
            deadline = member.membership.deadline
            await until(lambda: member.membership.deadline > deadline + 1)  # its session is renewed
            assert not two.owned
            member.may_acknowledge.set()
            await until(lambda: split(topic, 2, member, two))


async def test_partitions_of_a_dead_member_are_reassigned_after_its_session(
    kafka: KafkaHandle,
) -> None:
    topic, group, servers = await kafka.topic(partitions=2), kafka.group(), kafka.bootstrap_servers
    async with open_member(servers, group, [topic]) as member:
        async with open_member(servers, group, [topic], leave=False) as two:
            await until(lambda: split(topic, 2, member, two))
            session = two.membership.deadline - asyncio.get_running_loop().time()
            assert session < 6  # the broker's setting; its default is 45 s
        await until(lambda: split(topic, 2, member))


async def test_a_fenced_member_loses_its_partitions_and_rejoins(kafka: KafkaHandle) -> None:
    topic, group, servers = await kafka.topic(partitions=2), kafka.group(), kafka.bootstrap_servers
    async with open_member(servers, group, [topic], rebalance_timeout_ms=1000) as member:
        await until(lambda: split(topic, 2, member))
        first = member.membership.identity
        member.may_acknowledge.clear()  # so that the member does not revoke in time
        async with open_member(servers, group, [topic]) as two:
            await until(lambda: len(member.owned) == 1)
            fenced_at = member.membership.deadline
            await until(lambda: member.membership.lost)
            assert asyncio.get_running_loop().time() > fenced_at
            assert member.epoch == -1
            await until(lambda: split(topic, 2, two))
            member.may_acknowledge.set()
            await until(lambda: split(topic, 2, member, two))
            assert member.lost
            again = member.membership.identity
            assert first is not None
            assert again is not None
            assert again.member_id == first.member_id


async def test_a_static_member_returns_to_its_partitions_without_a_rebalance(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group, servers = await kafka.topic(partitions=4), kafka.group(), kafka.bootstrap_servers
    async with open_member(servers, group, [topic]) as member:
        async with open_member(servers, group, [topic], group_instance_id="i") as two:
            await until(lambda: split(topic, 4, member, two))
            had, epoch, reported = two.owned, member.epoch, len(member.assignments)
        async with (
            open_member(servers, group, [topic], group_instance_id="i") as again,
            open_member(servers, group, [topic], group_instance_id="i") as too_many,
        ):
            await until(lambda: again.owned == had or too_many.owned == had)
            await until(lambda: "live member still has the same `group_instance_id`" in caplog.text)
            first, second = (again, too_many) if again.owned else (too_many, again)
            assert not second.assignments
            await first.membership.leave()
            await until(lambda: second.owned == had)
        assert (member.epoch, len(member.assignments)) == (epoch, reported)


async def test_a_second_static_member_replaces_one_that_left_temporarily(
    kafka: KafkaHandle,
) -> None:
    topic, group, servers = await kafka.topic(partitions=1), kafka.group(), kafka.bootstrap_servers
    async with open_member(servers, group, [topic], group_instance_id="i", leave=False) as member:
        await until(lambda: split(topic, 1, member))
        async with open_member(servers, group, [topic], group_instance_id="i") as two:
            await _leave_temporarily(member)
            await until(lambda: split(topic, 1, two))
            await until(lambda: member.error is not None)
        assert isinstance(member.error, FencedInstanceId)
        assert member.membership.lost


async def _leave_temporarily(follower: Follower) -> None:
    """Send the temporary leave of a static member, which does not know about it."""
    identity = follower.membership.identity
    assert identity is not None
    async with follower.coordinator.reached(Traffic.GROUP) as connection:
        leave = ConsumerGroupHeartbeatRequest(
            follower.coordinator.group_id,
            identity.member_id,
            STATIC_LEAVE_EPOCH,
            instance_id=identity.instance_id,
        )
        assert (await connection.request(leave)).error_code == 0


async def test_a_pattern_assigns_later_topics_and_added_partitions_as_fresh(
    kafka: KafkaHandle,
) -> None:
    group, servers = kafka.group(), kafka.bootstrap_servers
    stem = await kafka.topic(partitions=1)
    async with open_member(servers, group, PatternSubscription(f"{stem}.*")) as member:
        await until(lambda: member.owned == partitions(stem, 0))
        assert not member.assignments[-1].fresh
        await kafka.admin.create_topic(f"{stem}-more", partitions=2)
        later = partitions(f"{stem}-more", 0, 1)
        await until(lambda: member.owned == partitions(stem, 0) | later)
        assert member.assignments[-1].fresh == later
        await kafka.admin.add_partitions(stem, 2)
        await until(lambda: member.owned == partitions(stem, 0, 1) | later)
        assert member.assignments[-1].fresh == later | partitions(stem, 1)
        assert not member.lost


async def test_a_pattern_assigns_internal_topics_unless_they_are_excluded(
    kafka: KafkaHandle,
) -> None:
    group, servers = kafka.group(), kafka.bootstrap_servers
    topic = await kafka.topic(partitions=1)
    pattern = PatternSubscription(f"{topic}.*|__consumer_offsets")
    async with open_member(servers, group, pattern) as member:
        await until(lambda: member.owned == partitions(topic, 0))
        await kafka.admin.create_topic(f"{topic}-more", partitions=1)
        others = partitions(topic, 0) | partitions(f"{topic}-more", 0)
        await until(lambda: member.owned == others)
        async with open_member(servers, group, pattern, exclude_internal_topics=False) as two:
            await until(lambda: TopicPartition("__consumer_offsets", 0) in two.owned)
            assert {tp.topic for tp in member.owned} <= {tp.topic for tp in others}


async def test_a_subscription_can_change(kafka: KafkaHandle) -> None:
    group, servers = kafka.group(), kafka.bootstrap_servers
    old_topic, new_topic = await kafka.topic(partitions=2), await kafka.topic(partitions=1)
    async with open_member(servers, group, [old_topic]) as member:
        await until(lambda: member.owned == partitions(old_topic, 0, 1))
        member.membership.subscribe(TopicSubscription([old_topic, new_topic]))
        await until(lambda: member.owned == partitions(old_topic, 0, 1) | partitions(new_topic, 0))
        member.membership.subscribe(PatternSubscription(new_topic))
        await until(lambda: member.owned == partitions(new_topic, 0))
        member.membership.subscribe(TopicSubscription([old_topic]))
        await until(lambda: member.owned == partitions(old_topic, 0, 1))
        assert not member.lost


async def test_partitions_of_a_re_created_topic_are_assigned_as_fresh(kafka: KafkaHandle) -> None:
    topic, group, servers = await kafka.topic(partitions=1), kafka.group(), kafka.bootstrap_servers
    async with open_member(servers, group, [topic]) as member:
        await until(lambda: member.owned == partitions(topic, 0))
        await kafka.admin.delete_topic(topic)
        await until(lambda: not member.owned)
        await kafka.admin.create_topic(topic, partitions=1)
        await until(lambda: member.owned == partitions(topic, 0))
        assert member.assignments[-1].fresh == member.owned


async def test_errors_of_the_coordinator_that_are_not_retriable_are_raised(
    kafka: KafkaHandle,
) -> None:
    topic, group, servers = await kafka.topic(), kafka.group(), kafka.bootstrap_servers
    async with open_member(servers, group, [topic], group_remote_assignor="fair") as member:
        await until(lambda: member.error is not None)
    assert isinstance(member.error, UnsupportedAssignor)
    assert "Supported assignors: uniform, range" in str(member.error)
    async with open_member(servers, group, PatternSubscription("a", text="(")) as two:
        await until(lambda: two.error is not None)
    assert isinstance(two.error, InvalidRegularExpression)
    assert "`(` is not a valid regular expression" in str(two.error)


async def test_a_broker_without_kip848_raises_consumer_protocol_unsupported(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    async with open_member(kafka_zk.bootstrap_servers, group, [topic]) as member:
        await until(lambda: member.error is not None)
    assert isinstance(member.error, ConsumerProtocolUnsupported)
    assert 'Set `group_protocol="classic"`' in str(member.error)


async def test_a_member_commits_with_its_id_and_epoch(kafka: KafkaHandle) -> None:
    topic, group, servers = await kafka.topic(), kafka.group(), kafka.bootstrap_servers
    tp = TopicPartition(topic, 0)
    async with open_member(servers, group, [topic]) as member:
        await until(lambda: split(topic, 1, member))

        def offsets(identity: MemberIdentity | None) -> KafkaOffsets:
            return KafkaOffsets(
                member.coordinator,
                patience_ms=0,
                randomness=Random(1),
                identity=lambda: identity,
            )

        await offsets(member.membership.identity).commit({tp: 7})
        assert await offsets(None).load([tp]) == {tp: 7}


async def test_restarting_the_coordinator_causes_no_rebalance(kafka_cluster: KafkaCluster) -> None:
    topic, group = await kafka_cluster.topic(partitions=4), kafka_cluster.group()
    servers = kafka_cluster.bootstrap_servers
    async with (
        open_member(servers, group, [topic]) as member,
        open_member(servers, group, [topic]) as two,
    ):
        await until(lambda: split(topic, 4, member, two))
        epochs, reported = (
            (member.epoch, two.epoch),
            (len(member.assignments), len(two.assignments)),
        )
        where = await member.coordinator.find()
        broker = next(
            broker for broker in kafka_cluster.brokers.values() if broker.address() == str(where)
        )
        await broker.restart()

        def uses_another_coordinator(follower: Follower) -> bool:
            beat = follower.membership.heartbeat
            return beat is not None and beat[0] != where

        await until(lambda: uses_another_coordinator(member) and uses_another_coordinator(two))
        assert (member.epoch, two.epoch) == epochs
        assert (len(member.assignments), len(two.assignments)) == reported
        assert split(topic, 4, member, two)


async def test_a_session_timeout_hidden_by_acls_is_assumed_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Kafka(listeners=[SASL_PLAIN_UNENCRYPTED], acls=True) as kafka:
        await kafka.admin.create_topic("orders", partitions=1)
        await kafka.admin.allow("alice", "topic", "orders", "read")
        await kafka.admin.allow("alice", "group", "g", "read")
        settings: Any = kafka.client_settings(SASL_PLAIN_UNENCRYPTED, "alice")
        async with open_member(ConnectionConfig(**settings), "g", ["orders"]) as member:
            await until(lambda: member.owned == partitions("orders", 0))
        expected = "group g: assuming a session timeout of 45000 ms, because the ACLs"
        assert [record.levelname for record in caplog.records if expected in record.message] == [
            "WARNING"
        ]
        caplog.clear()
        await kafka.admin.allow("alice", "group", "g", "describe_configs")
        async with open_member(ConnectionConfig(**settings), "g", ["orders"]) as member:
            await until(lambda: member.owned == partitions("orders", 0))
        assert "assuming" not in caplog.text
