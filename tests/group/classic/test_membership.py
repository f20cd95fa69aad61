"""A classic member step by step, on virtual time."""

import asyncio
import logging
from math import inf
from typing import Any

import pytest

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    ConfigError,
    FencedInstanceId,
    GroupAccessDenied,
    InvalidSessionTimeout,
)
from asyncconsumer.group.assignors import CooperativeStickyAssignor, RangeAssignor
from asyncconsumer.group.classic.config import ClassicGroupConfig
from asyncconsumer.group.classic.leader import GroupLeader
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.subscription import PatternSubscription, TopicSubscription
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.classic_group import JoinGroupRequest
from asyncconsumer.testing.fake_kafka.broker import Fate
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.fake_classic_group import GROUP, fake_cluster, now, open_member
from tests.support.helpers import until
from tests.support.real_classic_group import ClassicMember, generation_of

pytestmark = pytest.mark.fast

METADATA, JOIN, HEARTBEAT, LEAVE, SYNC = 3, 11, 12, 13, 14
ALL = {0, 1, 2, 3}
SEEDS = range(2)  # `world` has thousands of schedules


async def has_all(member: ClassicMember) -> None:
    await until(lambda: member.numbers == ALL)


def member_state(tested: ClassicMembership) -> tuple[object, ...]:
    return tested.deadline, tested.identity, tested.heartbeat, tested.lost


# --- membership and deadline ---------------------------------------------------------------------


@simulated(seeds=SEEDS)
async def test_assigned_partitions_are_owned_until_the_member_leaves() -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        tested, nothing = member.membership, (-inf, None, None, True)
        assert member_state(tested) == nothing
        await has_all(member)
        assert not tested.lost
        assert generation_of(member) == 1
        assert set(member.history[-1].owners) == member.owned
        await member.leave()
        assert member_state(tested) == nothing
        assert not cluster.groups[GROUP].members
        await tested.leave()  # harmless


@simulated(seeds=SEEDS)
async def test_a_session_counts_from_the_send_time_of_a_heartbeat() -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        cluster.slow(1, 1.0)  # a response takes two seconds
        before = member.membership.deadline
        await until(lambda: member.membership.deadline > before)
        assert member.membership.deadline <= now() - 2 + 45.0
        assert member.membership.deadline >= now() - 3 + 0.9 * 45.0


@simulated(seeds=SEEDS)
async def test_heartbeats_of_a_thread_extend_the_deadline() -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster, heartbeat_interval_ms=10_000) as member,
    ):
        await has_all(member)
        assert member.membership.heartbeat is not None
        address, request = member.membership.heartbeat
        connection = await cluster.open(
            address, ConnectionConfig(bootstrap_servers=cluster.bootstrap_servers)
        )
        await asyncio.sleep(1)
        before, sent = member.membership.deadline, now()
        assert (await connection.request(request)).to_object()["error_code"] == 0
        member.membership.heartbeat_from_thread(sent)
        assert member.membership.deadline == before + sent - before + 0.9 * 45.0
        member.membership.heartbeat_from_thread(sent - 1)  # an older heartbeat
        assert member.membership.deadline == sent + 0.9 * 45.0
        connection.close()
        await connection.wait_closed()


# --- heartbeats ----------------------------------------------------------------------------------


@simulated(seeds=SEEDS)
async def test_heartbeats_continue_while_the_rebalancer_is_slow() -> None:
    """A member that commits or loads for longer than a session stays in the group."""
    async with fake_cluster() as cluster, open_member(cluster, delay=100.0) as slow:
        await until(lambda: bool(slow.history))
        async with open_member(cluster) as other:
            await until(lambda: bool(other.owned), 300)
            assert not any(assignment.lost for assignment in slow.history)
            assert now() > 100


@simulated(seeds=SEEDS)
async def test_a_late_member_is_fenced_before_others_get_its_partitions() -> None:
    options: dict[str, Any] = {"heartbeat_interval_ms": 10_000, "rebalance_timeout_ms": 10_000}
    async with fake_cluster() as cluster, open_member(cluster, delay=100.0, **options) as slow:
        await until(lambda: bool(slow.history))
        assert slow.membership.deadline > now()
        async with open_member(cluster, **options) as other:
            await until(lambda: bool(other.owned), 300)
            assert slow.membership.deadline <= now()


@simulated(seeds=SEEDS)
async def test_a_member_that_waits_in_a_rebalance_keeps_its_partitions() -> None:
    async with (
        fake_cluster() as cluster,
        open_member(
            cluster, None, [CooperativeStickyAssignor()], rebalance_timeout_ms=10_000
        ) as member,
    ):
        await has_all(member)
        async with open_member(cluster, None, [CooperativeStickyAssignor()], delay=50.0) as slow:
            await until(lambda: len(slow.history) == 2, 300)  # which this member processes slowly
            async with open_member(cluster, None, [CooperativeStickyAssignor()]):
                await asyncio.sleep(5)
                for _ in range(30):
                    assert member.membership.awaiting_assignment
                    assert member.membership.deadline > now()
                    await asyncio.sleep(1)


@simulated(seeds=SEEDS)
@pytest.mark.parametrize(
    "requested", [TopicSubscription(["t"]), PatternSubscription("t")], ids=["topics", "a pattern"]
)
async def test_a_rebalance_uses_recent_metadata(
    requested: TopicSubscription | PatternSubscription,
) -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster, requested, metadata_refresh_ms=60_000) as member,
    ):
        await has_all(member)
        metadata_requests = cluster.brokers[1].requests[METADATA]
        member.membership.rejoin("requested by a test")
        await until(lambda: generation_of(member) == 2)
        assert cluster.brokers[1].requests[METADATA] == metadata_requests


@simulated(seeds=SEEDS)
async def test_topics_of_an_earlier_pattern_are_not_subscribed() -> None:
    async with fake_cluster() as cluster, open_member(cluster, PatternSubscription("t")) as member:
        await has_all(member)
        member.membership.subscribe(TopicSubscription(["other"]))
        await until(lambda: generation_of(member) == 2 and not member.numbers)
        member.membership.rejoin("requested by a test")
        await until(lambda: generation_of(member) == 3)
        assert not member.numbers


@simulated(seeds=SEEDS)
async def test_heartbeats_continue_while_a_join_waits() -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster, assignors=[CooperativeStickyAssignor()]) as member,
        open_member(cluster, assignors=[CooperativeStickyAssignor()], delay=100.0) as slow,
    ):
        await until(lambda: bool(slow.history), 300)
        member.membership.rejoin("requested by a test")
        await asyncio.sleep(60)  # longer than a session; the slow member has not joined yet
        assert member.owned
        assert member.membership.deadline > now() + 30
        assert not member.membership.lost


@simulated(seeds=SEEDS)
async def test_a_rebalance_reported_during_a_join_causes_no_second_join() -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster, assignors=[CooperativeStickyAssignor()]) as member,
        open_member(cluster, assignors=[CooperativeStickyAssignor()]) as slow,
    ):
        await until(lambda: len(member.owned) == len(slow.owned) == 2)
        await asyncio.sleep(10)
        slow.delay, before = 20.0, generation_of(member)
        member.membership.rejoin("requested by a test")
        slow.membership.rejoin("requested by a test")
        await until(lambda: generation_of(member) > before)
        member.membership.rejoin("requested by a test")  # this join waits
        await asyncio.sleep(100)
        assert generation_of(member) == before + 2


@simulated(seeds=SEEDS)
async def test_a_member_lost_during_a_join_rejoins_on_another_connection() -> None:
    """A broker reads no other request of a connection while a JoinGroup waits."""
    async with (
        fake_cluster() as cluster,
        open_member(cluster, assignors=[CooperativeStickyAssignor()]) as member,
        open_member(cluster, assignors=[CooperativeStickyAssignor()], delay=1000.0) as slow,
    ):
        await until(lambda: bool(slow.history))
        member.membership.rejoin("requested by a test")
        await asyncio.sleep(10)
        joins = cluster.brokers[1].requests[JOIN]
        cluster.fail_next(HEARTBEAT, 25, times=2)  # both members get the error
        await until(lambda: cluster.brokers[1].requests[JOIN] > joins, 10)


@simulated(seeds=SEEDS)
@pytest.mark.parametrize(("code", "same_id"), [(22, True), (25, False)])
async def test_a_heartbeat_error_causes_a_loss_and_a_rejoin(code: int, *, same_id: bool) -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        identity, owned = member.membership.identity, frozenset(member.owned)
        cluster.fail_next(HEARTBEAT, code)
        await until(lambda: len(member.history) > 1)
        assert member.history[1].lost == owned
        assert not member.history[1].partitions
        await until(lambda: len(member.history) == 3)
        assert member.membership.identity is not None
        assert identity is not None
        assert (member.membership.identity.member_id == identity.member_id) is same_id


@simulated(seeds=SEEDS)
async def test_a_silent_coordinator_fences_first_and_then_causes_a_loss() -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        cluster.black_hole(1)
        await until(lambda: now() > member.membership.deadline > -inf)
        assert member_state(member.membership)[3] is False
        assert len(member.history) == 1
        await until(lambda: len(member.history) > 1)
        assert member_state(member.membership)[:3] == (-inf, None, None)
        assert {p.partition for p in member.history[1].lost} == ALL
        cluster.restore(1)
        await until(lambda: len(member.history) > 2 and member.numbers == ALL, 400)


@simulated(seeds=SEEDS)
async def test_a_moved_coordinator_causes_no_rebalance() -> None:
    async with fake_cluster(brokers=3) as cluster, open_member(cluster) as member:
        await has_all(member)
        for loading in (0.0, 2.0):
            node = cluster.move_coordinator(GROUP, loading=loading)
            before, beats = member.membership.deadline, cluster.brokers[node].requests[HEARTBEAT]
            await until(lambda: cluster.brokers[node].requests[HEARTBEAT] > beats + 2)  # noqa: B023
            assert member.membership.deadline > before
        cluster.kill(cluster.coordinator(GROUP))
        before = now()
        await until(lambda: member.membership.deadline > before + 45.0)
        assert generation_of(member) == 1
        assert len(member.history) == 1
        assert member.membership.rebalances == 1


@simulated(seeds=SEEDS)
async def test_a_join_does_not_wait_for_the_former_coordinator() -> None:
    """The old coordinator is frozen during JoinGroup, and the group has moved."""
    async with (
        fake_cluster(brokers=2) as cluster,
        open_member(cluster, assignors=[CooperativeStickyAssignor()]) as member,
    ):
        await has_all(member)
        old = cluster.coordinator(GROUP)
        cluster.slow(old, 0.5)
        member.membership.rejoin("requested by a test")
        await asyncio.sleep(0.1)  # the JoinGroup is in flight
        cluster.freeze(old)
        cluster.move_coordinator(GROUP)
        await until(lambda: generation_of(member) == 2)
        assert member.numbers == ALL
        assert not any(assignment.lost for assignment in member.history)


@simulated(seeds=SEEDS)
async def test_the_first_join_does_not_wait_for_the_former_coordinator() -> None:
    async with fake_cluster(brokers=2) as cluster:
        old = cluster.coordinator(GROUP)
        cluster.slow(old, 0.5)
        async with open_member(cluster) as member:
            await until(lambda: cluster.brokers[old].requests[JOIN] > 0)
            cluster.freeze(old)
            cluster.move_coordinator(GROUP)
            before = now()
            await has_all(member)
            assert now() - before < 60  # the response would take minutes


# --- joining -------------------------------------------------------------------------------------


@simulated(seeds=SEEDS)
@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("api", [JOIN, SYNC])
async def test_a_lost_join_or_sync_response_is_requested_again(api: int, fate: Fate) -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        cluster.lose_next(api, fate)
        member.membership.rejoin("requested by a test")
        await until(lambda: len(member.history) == 3)
        assert member.numbers == ALL
        assert not any(assignment.lost for assignment in member.history)
        if api == SYNC:
            assert generation_of(member) == 2  # no further generation was needed


@simulated(seeds=SEEDS)
@pytest.mark.parametrize("code", [14, 15, 16, 27])
@pytest.mark.parametrize("api", [JOIN, SYNC])
async def test_a_temporary_error_is_no_loss(api: int, code: int) -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster, assignors=[CooperativeStickyAssignor()]) as member,
    ):
        await has_all(member)
        cluster.fail_next(api, code, times=2)
        member.membership.rejoin("requested by a test")
        await until(lambda: len(member.history) == 2)
        assert member.numbers == ALL
        assert not any(assignment.lost for assignment in member.history)


@simulated(seeds=SEEDS)
@pytest.mark.parametrize("api", [JOIN, SYNC, HEARTBEAT])
@pytest.mark.parametrize(("code", "error"), [(82, FencedInstanceId), (30, GroupAccessDenied)])
async def test_a_final_error_is_raised(api: int, code: int, error: type) -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        cluster.fail_next(api, code)
        member.membership.rejoin("requested by a test")
        await until(member.task.done)
        assert isinstance(member.failure, error)
        assert member.membership.lost
        assert member.membership.identity is None
        assert member.membership.deadline == -inf


@simulated(seeds=SEEDS)
@pytest.mark.parametrize(("times", "ends"), [(1, False), (2, True)])
async def test_a_new_member_id_is_fenced_only_the_second_time(times: int, *, ends: bool) -> None:
    """The first error may come from an old coordinator. Two processes of one name must end."""
    async with fake_cluster() as cluster, open_member(cluster, group_instance_id="i") as member:
        await has_all(member)
        cluster.fail_next(HEARTBEAT, 25)  # the member is forgotten, and returns by its instance id
        cluster.fail_next(SYNC, 82, times=times)
        await until(lambda: any(assignment.lost for assignment in member.history))
        await until(lambda: member.task.done() if ends else member.numbers == ALL)
        assert isinstance(member.failure, FencedInstanceId) is ends


@simulated(seeds=SEEDS)
async def test_a_fenced_join_with_an_instance_id_is_final() -> None:
    async with fake_cluster() as cluster:
        cluster.fail_next(JOIN, 82)
        async with open_member(cluster, group_instance_id="i") as member:
            await until(member.task.done)
            assert isinstance(member.failure, FencedInstanceId)


@simulated(seeds=SEEDS)
async def test_a_session_timeout_that_brokers_refuse_is_reported() -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster, session_timeout_ms=5_000, heartbeat_interval_ms=500) as member,
    ):
        await until(member.task.done)
        assert isinstance(member.failure, InvalidSessionTimeout)


@simulated(seeds=SEEDS)
async def test_a_cooperative_rebalance_does_not_revoke_kept_partitions() -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster, assignors=[CooperativeStickyAssignor()]) as member,
    ):
        await has_all(member)
        async with open_member(cluster, assignors=[CooperativeStickyAssignor()]) as two:
            await until(lambda: len(two.owned) == 2)
            retained = set.intersection(
                *(set(assignment.partitions) for assignment in member.history)
            )
            assert retained == member.owned
            assert len(retained) == 2
            assert not two.owned & member.owned


@simulated(seeds=SEEDS)
async def test_the_leader_knows_the_owners_of_all_partitions() -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster) as member,
        open_member(cluster) as two,
    ):
        await until(lambda: len(member.owned) == len(two.owned) == 2)
        leads, follows = (member, two) if len(member.history[-1].owners) == 4 else (two, member)
        assert follows.membership.identity is not None
        their_id = follows.membership.identity.member_id
        reported = {p for p, name in leads.history[-1].owners.items() if name == their_id}
        assert reported == follows.owned == set(follows.history[-1].owners)


@simulated(seeds=SEEDS)
async def test_a_malformed_member_gets_no_partition_and_the_group_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        async with member.coordinator.reached(Traffic.CONTROL) as connection:
            joined = asyncio.ensure_future(odd_member(connection))  # noqa: TID251
            with caplog.at_level(logging.ERROR):
                await until(joined.done)
        await until(lambda: generation_of(member) == 2 and member.numbers == ALL)
        assert f"member {joined.result()} gets no partition" in caplog.text
        assert "malformed subscription" in caplog.text


async def odd_member(connection: BrokerConnection) -> str:
    member_id = ""
    for _ in range(2):
        request = JoinGroupRequest(
            GROUP,
            {"range": b"nonsense"},
            protocol_type="consumer",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
        )
        member_id = (await connection.request(request)).to_object()["member_id"]
    return member_id


@simulated(seeds=SEEDS)
async def test_all_partitions_of_a_later_topic_are_fresh() -> None:
    async with (
        fake_cluster() as cluster,
        open_member(cluster, TopicSubscription(["t", "later"])) as member,
    ):
        await has_all(member)
        assert not member.history[-1].fresh
        cluster.add_topic("later", 1)
        cluster.add_partitions("t", 5)
        await until(lambda: len(member.owned) == 6)
        assert member.history[-1].fresh == {TopicPartition("later", 0), TopicPartition("t", 4)}


@simulated(seeds=SEEDS)
async def test_a_returned_leader_detects_partitions_added_meanwhile() -> None:
    """The leader computes no assignment, and so does not know the input of the current one."""
    async with fake_cluster() as cluster:
        async with open_member(cluster, group_instance_id="i") as member:
            await has_all(member)
        async with open_member(cluster, group_instance_id="i") as member:
            await has_all(member)
            assert generation_of(member) == 1
            await asyncio.sleep(20)
            assert len(member.history) == 1
        cluster.add_partitions("t", 5)
        async with open_member(cluster, group_instance_id="i") as member:
            await until(lambda: len(member.owned) == 5)


@simulated(seeds=SEEDS)
async def test_stale_metadata_of_a_broker_causes_no_rebalance() -> None:
    async with (
        fake_cluster(brokers=3) as cluster,
        open_member(cluster, PatternSubscription(".*"), metadata_refresh_ms=500) as member,
    ):
        await has_all(member)
        cluster.go_stale(2)
        cluster.add_topic("new", 1)
        await until(lambda: len(member.owned) == 5)
        await asyncio.sleep(10)  # a topic that is missing for long counts as deleted
        assert [len(assignment.partitions) for assignment in member.history] == [4, 0, 5]


@simulated(seeds=SEEDS)
async def test_patterns_exclude_internal_topics() -> None:
    async with fake_cluster() as cluster:
        cluster.add_topic("__consumer_offsets", 1)
        async with open_member(cluster, PatternSubscription(".*")) as member:
            await has_all(member)
        async with open_member(
            cluster, PatternSubscription(".*"), exclude_internal_topics=False
        ) as member:
            await until(lambda: len(member.owned) == 5)


# --- leaving -------------------------------------------------------------------------------------


@simulated(seeds=SEEDS)
async def test_leaving_an_unreachable_coordinator_is_limited_in_time() -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        cluster.black_hole(1)
        before = now()
        await member.leave()
        assert now() - before < 6
        assert member.membership.lost


@simulated(seeds=SEEDS)
@pytest.mark.parametrize("fate", Fate)
async def test_a_lost_leave_group_request_is_repeated(fate: Fate) -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        cluster.lose_next(LEAVE, fate)
        await member.leave()
        assert not cluster.groups[GROUP].members


@simulated(seeds=SEEDS)
async def test_a_static_member_sends_no_leave_group_request() -> None:
    async with fake_cluster() as cluster, open_member(cluster, group_instance_id="i") as member:
        await has_all(member)
        await member.leave()
        assert len(cluster.groups[GROUP].members) == 1
        assert member.membership.lost


@simulated(seeds=SEEDS)
async def test_the_assignments_end_when_the_member_leaves() -> None:
    async with fake_cluster() as cluster, open_member(cluster) as member:
        await has_all(member)
        await member.membership.leave()
        await until(member.task.done)
        assert member.failure is None


@simulated(seeds=SEEDS)
async def test_a_member_that_leaves_during_a_join_does_not_block_the_group() -> None:
    async with fake_cluster() as cluster, open_member(cluster, delay=20) as member:
        await until(lambda: bool(member.history))
        async with open_member(cluster) as two:
            await asyncio.sleep(5)  # the second member waits for the slow one
            await two.leave()
        await until(lambda: len(cluster.groups[GROUP].members) == 1)


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"group_id": ""},
        {"group_id": "g", "group_instance_id": ""},
        {"group_id": "g", "session_timeout_ms": 2_000},
        {"group_id": "g", "heartbeat_interval_ms": 0},
        {"group_id": "g", "rebalance_timeout_ms": 0},
        {"group_id": "g", "metadata_refresh_ms": -1},
    ],
)
def test_invalid_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=list(options)[-1]):
        ClassicGroupConfig(**options)  # type: ignore[arg-type]


def test_subscriptions_are_validated_and_compared() -> None:
    assert (
        TopicSubscription(["a", "b"]) == TopicSubscription({"b", "a"}) != TopicSubscription(["a"])
    )
    with pytest.raises(ConfigError, match=r"Topics\(\['orders'\]\)"):
        TopicSubscription("orders")
    assert PatternSubscription("a|b").matching(["a", "b", "ab"], exclude_internal=True) == {
        "a",
        "b",
    }
    with pytest.raises(ConfigError, match="not a regular expression"):
        PatternSubscription("(")
    with pytest.raises(ConfigError, match="pass an assignor"):
        GroupLeader([], "")


def test_one_eager_assignor_makes_a_member_eager() -> None:
    assert GroupLeader([CooperativeStickyAssignor()], "").cooperative
    assert not GroupLeader([CooperativeStickyAssignor(), RangeAssignor()], "").cooperative
