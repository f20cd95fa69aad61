"""One member, step by step, on virtual time."""

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
from asyncconsumer.testing.fake_kafka.groups import Fate
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.helpers import until
from tests.kafka_group.fakes import GROUP, fake_cluster, member, now
from tests.kafka_group.real import Following, the_generation

pytestmark = pytest.mark.fast

METADATA, JOIN, HEARTBEAT, LEAVE, SYNC = 3, 11, 12, 13, 14
ALL = {0, 1, 2, 3}
SEEDS = range(2)  # schedules by the thousand are in `world`


async def has_all(one: Following) -> None:
    await until(lambda: one.numbers == ALL)


def standing(ours: ClassicMembership) -> tuple[object, ...]:
    return ours.deadline, ours.identity, ours.heartbeat, ours.lost


# --- how it stands -------------------------------------------------------------------------------


@simulated(seeds=SEEDS)
async def test_what_is_ours_is_ours_until_we_leave() -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        ours, nothing = one.membership, (-inf, None, None, True)
        assert standing(ours) == nothing
        await has_all(one)
        assert not ours.lost
        assert the_generation(one) == 1
        assert set(one.history[-1].owners) == one.owned
        await one.leave()
        assert standing(ours) == nothing
        assert not cluster.groups[GROUP].members
        await ours.leave()  # harmless


@simulated(seeds=SEEDS)
async def test_a_session_counts_from_when_a_heartbeat_was_sent() -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        cluster.slow(1, 1.0)  # an answer takes two seconds
        before = one.membership.deadline
        await until(lambda: one.membership.deadline > before)
        assert one.membership.deadline <= now() - 2 + 45.0
        assert one.membership.deadline >= now() - 3 + 0.9 * 45.0


@simulated(seeds=SEEDS)
async def test_others_can_send_our_heartbeats() -> None:
    async with fake_cluster() as cluster, member(cluster, heartbeat_interval_ms=10_000) as one:
        await has_all(one)
        assert one.membership.heartbeat is not None
        address, request = one.membership.heartbeat
        connection = await cluster.open(
            address, ConnectionConfig(bootstrap_servers=cluster.bootstrap_servers)
        )
        await asyncio.sleep(1)
        before, sent = one.membership.deadline, now()
        assert (await connection.request(request)).to_object()["error_code"] == 0
        one.membership.heartbeat_from_thread(sent)
        assert one.membership.deadline == before + sent - before + 0.9 * 45.0
        one.membership.heartbeat_from_thread(sent - 1)  # late news
        assert one.membership.deadline == sent + 0.9 * 45.0
        connection.close()
        await connection.wait_closed()


# --- heartbeats ----------------------------------------------------------------------------------


@simulated(seeds=SEEDS)
async def test_heartbeats_go_on_while_the_rebalancer_is_slow() -> None:
    """Longer than a session: whoever commits slowly, or loads, stays a member."""
    async with fake_cluster() as cluster, member(cluster, delay=100.0) as slow:
        await until(lambda: bool(slow.history))
        async with member(cluster) as other:
            await until(lambda: bool(other.owned), 300)
            assert not any(assignment.lost for assignment in slow.history)
            assert now() > 100


@simulated(seeds=SEEDS)
async def test_who_does_not_join_in_time_is_not_certain_of_anything_when_others_take_over() -> None:
    options: dict[str, Any] = {"heartbeat_interval_ms": 10_000, "rebalance_timeout_ms": 10_000}
    async with fake_cluster() as cluster, member(cluster, delay=100.0, **options) as slow:
        await until(lambda: bool(slow.history))
        assert slow.membership.deadline > now()
        async with member(cluster, **options) as other:
            await until(lambda: bool(other.owned), 300)
            assert slow.membership.deadline <= now()


@simulated(seeds=SEEDS)
async def test_who_waits_for_others_in_a_rebalance_keeps_what_it_has() -> None:
    async with (
        fake_cluster() as cluster,
        member(cluster, None, [CooperativeStickyAssignor()], rebalance_timeout_ms=10_000) as one,
    ):
        await has_all(one)
        async with member(cluster, None, [CooperativeStickyAssignor()], delay=50.0) as slow:
            await until(lambda: len(slow.history) == 2, 300)  # which it takes its time with
            async with member(cluster, None, [CooperativeStickyAssignor()]):
                await asyncio.sleep(5)
                for _ in range(30):
                    assert one.membership.awaiting_assignment
                    assert one.membership.deadline > now()
                    await asyncio.sleep(1)


@simulated(seeds=SEEDS)
@pytest.mark.parametrize(
    "wanted", [TopicSubscription(["t"]), PatternSubscription("t")], ids=["topics", "a pattern"]
)
async def test_a_rebalance_does_not_wait_for_topics_that_were_just_looked_at(
    wanted: TopicSubscription | PatternSubscription,
) -> None:
    async with (
        fake_cluster() as cluster,
        member(cluster, wanted, metadata_refresh_ms=60_000) as one,
    ):
        await has_all(one)
        looks = cluster.brokers[1].requests[METADATA]
        one.membership.rejoin("a test wants it")
        await until(lambda: the_generation(one) == 2)
        assert cluster.brokers[1].requests[METADATA] == looks


@simulated(seeds=SEEDS)
async def test_what_a_pattern_matched_before_is_not_what_is_subscribed_after_it() -> None:
    async with fake_cluster() as cluster, member(cluster, PatternSubscription("t")) as one:
        await has_all(one)
        one.membership.subscribe(TopicSubscription(["other"]))
        await until(lambda: the_generation(one) == 2 and not one.numbers)
        one.membership.rejoin("a test wants it")
        await until(lambda: the_generation(one) == 3)
        assert not one.numbers


@simulated(seeds=SEEDS)
async def test_heartbeats_go_on_while_a_join_waits() -> None:
    async with (
        fake_cluster() as cluster,
        member(cluster, assignors=[CooperativeStickyAssignor()]) as one,
        member(cluster, assignors=[CooperativeStickyAssignor()], delay=100.0) as slow,
    ):
        await until(lambda: bool(slow.history), 300)
        one.membership.rejoin("a test wants it")
        await asyncio.sleep(60)  # more than a session; the other has not been asked yet
        assert one.owned
        assert one.membership.deadline > now() + 30
        assert not one.membership.lost


@simulated(seeds=SEEDS)
async def test_what_heartbeats_hear_while_a_join_waits_is_no_news() -> None:
    async with (
        fake_cluster() as cluster,
        member(cluster, assignors=[CooperativeStickyAssignor()]) as one,
        member(cluster, assignors=[CooperativeStickyAssignor()]) as slow,
    ):
        await until(lambda: len(one.owned) == len(slow.owned) == 2)
        await asyncio.sleep(10)
        slow.delay, before = 20.0, the_generation(one)
        one.membership.rejoin("a test wants it")
        slow.membership.rejoin("a test wants it")
        await until(lambda: the_generation(one) > before)
        one.membership.rejoin("a test wants it")  # for this one it waits
        await asyncio.sleep(100)
        assert the_generation(one) == before + 2


@simulated(seeds=SEEDS)
async def test_who_is_lost_while_it_joins_does_not_wait_behind_itself() -> None:
    """A broker looks at nothing else on a connection while a JoinGroup waits there."""
    async with (
        fake_cluster() as cluster,
        member(cluster, assignors=[CooperativeStickyAssignor()]) as one,
        member(cluster, assignors=[CooperativeStickyAssignor()], delay=1000.0) as slow,
    ):
        await until(lambda: bool(slow.history))
        one.membership.rejoin("a test wants it")
        await asyncio.sleep(10)
        joins = cluster.brokers[1].requests[JOIN]
        cluster.fail_next(HEARTBEAT, 25, times=2)  # each of them hears it
        await until(lambda: cluster.brokers[1].requests[JOIN] > joins, 10)


@simulated(seeds=SEEDS)
@pytest.mark.parametrize(("code", "same_id"), [(22, True), (25, False)])
async def test_a_heartbeat_tells_of_a_loss(code: int, *, same_id: bool) -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        who, owned = one.membership.identity, frozenset(one.owned)
        cluster.fail_next(HEARTBEAT, code)
        await until(lambda: len(one.history) > 1)
        assert one.history[1].lost == owned
        assert not one.history[1].partitions
        await until(lambda: len(one.history) == 3)
        assert one.membership.identity is not None
        assert who is not None
        assert (one.membership.identity.member_id == who.member_id) is same_id


@simulated(seeds=SEEDS)
async def test_silence_fences_first_and_is_a_loss_after_a_session() -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        cluster.black_hole(1)
        await until(lambda: now() > one.membership.deadline > -inf)
        assert standing(one.membership)[3] is False
        assert len(one.history) == 1
        await until(lambda: len(one.history) > 1)
        assert standing(one.membership)[:3] == (-inf, None, None)
        assert {p.partition for p in one.history[1].lost} == ALL
        cluster.restore(1)
        await until(lambda: len(one.history) > 2 and one.numbers == ALL, 400)


@simulated(seeds=SEEDS)
async def test_a_coordinator_that_moves_costs_nothing() -> None:
    async with fake_cluster(brokers=3) as cluster, member(cluster) as one:
        await has_all(one)
        for loading in (0.0, 2.0):
            node = cluster.move_coordinator(GROUP, loading=loading)
            before, beats = one.membership.deadline, cluster.brokers[node].requests[HEARTBEAT]
            await until(lambda: cluster.brokers[node].requests[HEARTBEAT] > beats + 2)  # noqa: B023
            assert one.membership.deadline > before
        cluster.kill(cluster.coordinator(GROUP))
        before = now()
        await until(lambda: one.membership.deadline > before + 45.0)
        assert the_generation(one) == 1
        assert len(one.history) == 1
        assert one.membership.rebalances == 1


@simulated(seeds=SEEDS)
async def test_a_join_does_not_wait_for_a_coordinator_of_old() -> None:
    """It is frozen with our JoinGroup in its hands, and the group is elsewhere by now."""
    async with (
        fake_cluster(brokers=2) as cluster,
        member(cluster, assignors=[CooperativeStickyAssignor()]) as one,
    ):
        await has_all(one)
        old = cluster.coordinator(GROUP)
        cluster.slow(old, 0.5)
        one.membership.rejoin("a test wants it")
        await asyncio.sleep(0.1)  # it is on its way
        cluster.freeze(old)
        cluster.move_coordinator(GROUP)
        await until(lambda: the_generation(one) == 2)
        assert one.numbers == ALL
        assert not any(assignment.lost for assignment in one.history)


@simulated(seeds=SEEDS)
async def test_not_even_the_first_join_does() -> None:
    async with fake_cluster(brokers=2) as cluster:
        old = cluster.coordinator(GROUP)
        cluster.slow(old, 0.5)
        async with member(cluster) as one:
            await until(lambda: cluster.brokers[old].requests[JOIN] > 0)
            cluster.freeze(old)
            cluster.move_coordinator(GROUP)
            before = now()
            await has_all(one)
            assert now() - before < 60  # the answer would be waited for for minutes


# --- joining -------------------------------------------------------------------------------------


@simulated(seeds=SEEDS)
@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("api", [JOIN, SYNC])
async def test_a_lost_answer_is_asked_for_again(api: int, fate: Fate) -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        cluster.lose_next(api, fate)
        one.membership.rejoin("a test wants it")
        await until(lambda: len(one.history) == 3)
        assert one.numbers == ALL
        assert not any(assignment.lost for assignment in one.history)
        if api == SYNC:
            assert the_generation(one) == 2  # not even another one was needed


@simulated(seeds=SEEDS)
@pytest.mark.parametrize("code", [14, 15, 16, 27])
@pytest.mark.parametrize("api", [JOIN, SYNC])
async def test_a_refusal_that_passes_is_no_loss(api: int, code: int) -> None:
    async with (
        fake_cluster() as cluster,
        member(cluster, assignors=[CooperativeStickyAssignor()]) as one,
    ):
        await has_all(one)
        cluster.fail_next(api, code, times=2)
        one.membership.rejoin("a test wants it")
        await until(lambda: len(one.history) == 2)
        assert one.numbers == ALL
        assert not any(assignment.lost for assignment in one.history)


@simulated(seeds=SEEDS)
@pytest.mark.parametrize("api", [JOIN, SYNC, HEARTBEAT])
@pytest.mark.parametrize(("code", "error"), [(82, FencedInstanceId), (30, GroupAccessDenied)])
async def test_what_cannot_be_helped_is_raised(api: int, code: int, error: type) -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        cluster.fail_next(api, code)
        one.membership.rejoin("a test wants it")
        await until(one.task.done)
        assert isinstance(one.failure, error)
        assert one.membership.lost
        assert one.membership.identity is None
        assert one.membership.deadline == -inf


@simulated(seeds=SEEDS)
@pytest.mark.parametrize(("times", "ends"), [(1, False), (2, True)])
async def test_an_id_that_no_finished_generation_has_may_be_fenced_by_mistake(
    times: int, *, ends: bool
) -> None:
    """Who gave it may have died with it; but two processes of one name must not go on for ever."""
    async with fake_cluster() as cluster, member(cluster, group_instance_id="i") as one:
        await has_all(one)
        cluster.fail_next(HEARTBEAT, 25)  # it is forgotten, and comes back by its name
        cluster.fail_next(SYNC, 82, times=times)
        await until(lambda: any(assignment.lost for assignment in one.history))
        await until(lambda: one.task.done() if ends else one.numbers == ALL)
        assert isinstance(one.failure, FencedInstanceId) is ends


@simulated(seeds=SEEDS)
async def test_who_is_fenced_with_nothing_but_a_name_has_a_double() -> None:
    async with fake_cluster() as cluster:
        cluster.fail_next(JOIN, 82)
        async with member(cluster, group_instance_id="i") as one:
            await until(one.task.done)
            assert isinstance(one.failure, FencedInstanceId)


@simulated(seeds=SEEDS)
async def test_a_session_that_brokers_do_not_allow_is_told() -> None:
    async with (
        fake_cluster() as cluster,
        member(cluster, session_timeout_ms=5_000, heartbeat_interval_ms=500) as one,
    ):
        await until(one.task.done)
        assert isinstance(one.failure, InvalidSessionTimeout)


@simulated(seeds=SEEDS)
async def test_what_a_cooperative_member_keeps_is_never_interrupted() -> None:
    async with (
        fake_cluster() as cluster,
        member(cluster, assignors=[CooperativeStickyAssignor()]) as one,
    ):
        await has_all(one)
        async with member(cluster, assignors=[CooperativeStickyAssignor()]) as two:
            await until(lambda: len(two.owned) == 2)
            kept = set.intersection(*(set(one.partitions) for one in one.history))
            assert kept == one.owned
            assert len(kept) == 2
            assert not two.owned & one.owned


@simulated(seeds=SEEDS)
async def test_the_leader_knows_who_reads_what() -> None:
    async with fake_cluster() as cluster, member(cluster) as one, member(cluster) as two:
        await until(lambda: len(one.owned) == len(two.owned) == 2)
        leads, follows = (one, two) if len(one.history[-1].owners) == 4 else (two, one)
        assert follows.membership.identity is not None
        their_id = follows.membership.identity.member_id
        told = {p for p, who in leads.history[-1].owners.items() if who == their_id}
        assert told == follows.owned == set(follows.history[-1].owners)


@simulated(seeds=SEEDS)
async def test_a_member_that_talks_nonsense_gets_nothing_and_the_group_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        async with one.coordinator.reached(Traffic.CONTROL) as connection:
            joined = asyncio.ensure_future(odd_member(connection))  # noqa: TID251
            with caplog.at_level(logging.ERROR):
                await until(joined.done)
        await until(lambda: the_generation(one) == 2 and one.numbers == ALL)
        assert f"member {joined.result()} of the group gets nothing" in caplog.text
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
async def test_a_topic_that_comes_later_is_new_as_a_whole() -> None:
    async with fake_cluster() as cluster, member(cluster, TopicSubscription(["t", "later"])) as one:
        await has_all(one)
        assert not one.history[-1].fresh
        cluster.add_topic("later", 1)
        cluster.add_partitions("t", 5)
        await until(lambda: len(one.owned) == 6)
        assert one.history[-1].fresh == {TopicPartition("later", 0), TopicPartition("t", 4)}


@simulated(seeds=SEEDS)
async def test_a_leader_that_comes_back_notices_what_came_while_it_was_away() -> None:
    """It is not asked to divide, so it does not know what its share was made of."""
    async with fake_cluster() as cluster:
        async with member(cluster, group_instance_id="i") as one:
            await has_all(one)
        async with member(cluster, group_instance_id="i") as one:
            await has_all(one)
            assert the_generation(one) == 1
            await asyncio.sleep(20)
            assert len(one.history) == 1
        cluster.add_partitions("t", 5)
        async with member(cluster, group_instance_id="i") as one:
            await until(lambda: len(one.owned) == 5)


@simulated(seeds=SEEDS)
async def test_a_broker_that_has_not_heard_the_news_costs_no_rebalance() -> None:
    async with (
        fake_cluster(brokers=3) as cluster,
        member(cluster, PatternSubscription(".*"), metadata_refresh_ms=500) as one,
    ):
        await has_all(one)
        cluster.go_stale(2)
        cluster.add_topic("new", 1)
        await until(lambda: len(one.owned) == 5)
        await asyncio.sleep(10)  # who denies a topic for long is believed in the end
        assert [len(assignment.partitions) for assignment in one.history] == [4, 0, 5]


@simulated(seeds=SEEDS)
async def test_internal_topics_are_left_out_of_patterns() -> None:
    async with fake_cluster() as cluster:
        cluster.add_topic("__consumer_offsets", 1)
        async with member(cluster, PatternSubscription(".*")) as one:
            await has_all(one)
        async with member(cluster, PatternSubscription(".*"), exclude_internal_topics=False) as one:
            await until(lambda: len(one.owned) == 5)


# --- leaving -------------------------------------------------------------------------------------


@simulated(seeds=SEEDS)
async def test_leaving_takes_no_longer_than_a_few_seconds() -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        cluster.black_hole(1)
        before = now()
        await one.leave()
        assert now() - before < 6
        assert one.membership.lost


@simulated(seeds=SEEDS)
@pytest.mark.parametrize("fate", Fate)
async def test_a_lost_farewell_is_said_again(fate: Fate) -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        cluster.lose_next(LEAVE, fate)
        await one.leave()
        assert not cluster.groups[GROUP].members


@simulated(seeds=SEEDS)
async def test_a_static_member_leaves_without_a_word() -> None:
    async with fake_cluster() as cluster, member(cluster, group_instance_id="i") as one:
        await has_all(one)
        await one.leave()
        assert len(cluster.groups[GROUP].members) == 1
        assert one.membership.lost


@simulated(seeds=SEEDS)
async def test_the_assignments_end_when_we_leave() -> None:
    async with fake_cluster() as cluster, member(cluster) as one:
        await has_all(one)
        await one.membership.leave()
        await until(one.task.done)
        assert one.failure is None


@simulated(seeds=SEEDS)
async def test_who_leaves_while_it_joins_is_not_waited_for() -> None:
    async with fake_cluster() as cluster, member(cluster, delay=20) as one:
        await until(lambda: bool(one.history))
        async with member(cluster) as two:
            await asyncio.sleep(5)  # it waits for the first, which is slow
            await two.leave()
        await until(lambda: len(cluster.groups[GROUP].members) == 1)


# --- what can be said ----------------------------------------------------------------------------


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
def test_options_that_make_no_sense(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=list(options)[-1]):
        ClassicGroupConfig(**options)  # type: ignore[arg-type]


def test_subscriptions() -> None:
    assert (
        TopicSubscription(["a", "b"]) == TopicSubscription({"b", "a"}) != TopicSubscription(["a"])
    )
    with pytest.raises(ConfigError, match=r"Topics\(\['orders'\]\)"):
        TopicSubscription("orders")
    assert PatternSubscription("a|b").matching(["a", "b", "ab"], exclude_internal=True) == {
        "a",
        "b",
    }
    with pytest.raises(ConfigError, match="no regular expression"):
        PatternSubscription("(")
    with pytest.raises(ConfigError, match="needs an assignor"):
        GroupLeader([], "")


def test_one_eager_assignor_makes_a_member_eager() -> None:
    assert GroupLeader([CooperativeStickyAssignor()], "").cooperative
    assert not GroupLeader([CooperativeStickyAssignor(), RangeAssignor()], "").cooperative
