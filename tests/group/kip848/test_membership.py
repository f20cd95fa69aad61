"""KIP-848 members on a fake Kafka, with faults that a real one does not produce on demand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer.errors import (
    ConfigError,
    ConsumerProtocolUnsupported,
    GroupIdNotFound,
    GroupMaxSizeReached,
)
from asyncconsumer.group.kip848.config import ConsumerGroupConfig
from asyncconsumer.group.subscription import PatternSubscription
from asyncconsumer.testing.fake_kafka import HANDLERS, FakeCluster, Request
from asyncconsumer.testing.fake_kafka.consumer_groups import ConsumerGroups
from asyncconsumer.testing.fake_kafka.coordinators import Fate
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.helpers import until
from tests.support.kip848_members import Follower, open_member, partitions, split

pytestmark = pytest.mark.fast

HEARTBEAT = 68
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Recording(ConsumerGroups):
    """Fake groups that record requests."""

    def __init__(self, randomness: Random) -> None:
        super().__init__(randomness)
        self.asked: list[dict[str, Any]] = []

    def _beat(self, request: Request, asked: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(asked)
        return super()._beat(request, asked)


class Fakes:
    """A cluster with a topic, and its groups."""

    def __init__(self, cluster: FakeCluster, groups: Recording) -> None:
        self.cluster = cluster
        self.groups = groups

    def member(self, requested: Any = ("t",), **options: Any) -> Any:
        more = {"opener": self.cluster.open, "seed": len(self.groups.groups), **options}
        return open_member(self.cluster.config(), "g", requested, **more)

    @property
    def members(self) -> int:
        return len(self.groups.groups["g"].members)


@asynccontextmanager
async def fakes(**options: Any) -> AsyncIterator[Fakes]:
    groups = Recording(Random(1))
    handlers = {**HANDLERS, **groups.handlers}
    async with FakeCluster(Random(2), handlers=handlers, **options) as cluster:
        cluster.add_topic("t", 4)
        yield Fakes(cluster, groups)
        groups.close()


@simulated(range(10))
async def test_a_lost_heartbeat_response_causes_no_loss() -> None:
    async with fakes() as world, world.member() as member:
        await until(lambda: split("t", 4, member))
        for fate in (Fate.LOST_AFTER, Fate.LOST_BEFORE, Fate.LOST_AFTER):
            world.groups.fates.append(fate)
            async with world.member(seed=7) as two:
                await until(lambda: split("t", 4, member, two))
            await until(lambda: split("t", 4, member))
        assert not member.lost
        assert not world.groups.given_up


@simulated(range(5))
async def test_all_fields_are_sent_again_after_a_lost_response() -> None:
    async with fakes() as world, world.member() as member:
        await until(lambda: split("t", 4, member))
        await until(lambda: len(world.groups.asked) > 2)
        assert world.groups.asked[-1]["subscribed_topic_names"] is None
        world.groups.fates.append(Fate.LOST_AFTER)
        await until(lambda: not world.groups.fates)
        count = len(world.groups.asked)
        await until(lambda: len(world.groups.asked) > count)
        again = world.groups.asked[-1]
        assert (again["subscribed_topic_names"], again["rebalance_timeout_ms"]) == (["t"], 300_000)
        assert again["topic_partitions"]


@simulated(range(5))
async def test_the_first_assignment_waits_for_the_names_of_its_topics() -> None:
    async with fakes() as world:
        topic_id = world.cluster.add_topic("t2", 1)
        world.cluster.view.names.pop(topic_id.bytes)
        async with world.member(PatternSubscription("nothing", text="t2")) as member:
            await until(lambda: member.epoch > 0)
            await asyncio.sleep(20)
            assert not member.assignments
            world.cluster.view.names[topic_id.bytes] = "t2"
            await until(lambda: member.owned == partitions("t2", 0))


@simulated(range(10))
async def test_a_moved_coordinator_is_followed_without_a_rebalance() -> None:
    async with fakes() as world, world.member() as member:
        await until(lambda: split("t", 4, member))
        reported, epoch = len(member.assignments), member.epoch
        for node in (1, 2, 3):
            world.groups.move("g", node)
            address = world.cluster.brokers[node].endpoint.address
            await until(lambda: member.membership.heartbeat[0] == address)  # noqa: B023
        assert (len(member.assignments), member.epoch) == (reported, epoch)


@simulated(range(10))
async def test_topics_are_acknowledged_after_their_names_are_known() -> None:
    async with fakes() as world, world.member(PatternSubscription("t.*")) as member:
        await until(lambda: split("t", 4, member))
        for node in world.cluster.brokers:
            world.cluster.go_stale(node)
        topic_id = world.cluster.add_topic("t2", 1)
        for broker in world.cluster.brokers.values():  # metadata is stale, the coordinator is not
            broker.view.topics["t2"] = world.cluster.view.topics["t2"]
        group = world.groups.groups["g"]
        await until(lambda: any((topic_id, 0) in m.assigned for m in group.members.values()))
        await asyncio.sleep(30)
        assert member.owned == partitions("t", 0, 1, 2, 3)
        for node in world.cluster.brokers:
            world.cluster.catch_up(node)
        await until(lambda: member.owned == partitions("t", 0, 1, 2, 3) | partitions("t2", 0))
        assert member.assignments[-1].fresh == partitions("t2", 0)


@simulated(range(10))
async def test_an_older_coordinator_gets_the_matching_topic_names() -> None:
    async with (
        fakes(versions={HEARTBEAT: 0}) as world,
        world.member(PatternSubscription("t.*")) as member,
    ):
        await until(lambda: split("t", 4, member))
        assert not member.assignments[-1].fresh
        world.cluster.add_topic("other", 1)
        world.cluster.add_topic("t2", 1)
        await until(lambda: TopicPartition("t2", 0) in member.owned)
        assert member.owned == partitions("t", 0, 1, 2, 3) | partitions("t2", 0)
        assert member.assignments[-1].fresh == partitions("t2", 0)
        (known,) = world.groups.groups["g"].members.values()
        assert (sorted(known.topics), known.regex) == (["t", "t2"], "")


@pytest.mark.parametrize("version", [0, 1])
def test_internal_topics_match_only_if_they_are_not_excluded(version: int) -> None:
    @simulated(range(3))
    async def play() -> None:
        async with fakes(versions={HEARTBEAT: version}) as world:
            world.cluster.add_topic("__consumer_offsets", 1)
            async with world.member(PatternSubscription(".*")) as member:
                await until(lambda: split("t", 4, member))
                world.cluster.add_topic("t2", 1)
                await until(lambda: TopicPartition("t2", 0) in member.owned)
            others = partitions("t", 0, 1, 2, 3) | partitions("t2", 0)
            assert member.owned == others
            everything = others | partitions("__consumer_offsets", 0)
            async with world.member(
                PatternSubscription(".*"), exclude_internal_topics=False
            ) as member:
                await until(lambda: member.owned == everything)

    play()


@simulated(range(3))
async def test_a_member_replaces_a_pattern_that_its_coordinator_matches_by_names() -> None:
    async with fakes() as world, world.member(PatternSubscription("t.*")) as member:
        world.cluster.add_topic("__consumer_offsets", 1)
        world.cluster.add_topic("u", 1)
        await until(lambda: split("t", 4, member))
        (known,) = world.groups.groups["g"].members.values()
        assert (sorted(known.topics), known.regex) == ([], "t.*")
        member.membership.subscribe(PatternSubscription(".*"))
        await until(lambda: member.owned == partitions("t", 0, 1, 2, 3) | partitions("u", 0))
        assert (sorted(known.topics), known.regex) == (["t", "u"], "")


@pytest.mark.parametrize("disabled", [False, True])
def test_a_broker_without_the_protocol_is_distinguished(*, disabled: bool) -> None:
    @simulated(range(3))
    async def play() -> None:
        last = {} if disabled else {HEARTBEAT: -1}
        async with fakes(versions=last) as world:
            if disabled:
                world.cluster.fail_next(HEARTBEAT, 35)
            async with world.member() as member:
                await until(lambda: member.error is not None)
            assert isinstance(member.error, ConsumerProtocolUnsupported)
            assert member.membership.lost

    play()


@simulated(range(3))
async def test_a_full_group_is_an_error_and_a_missing_group_for_new_members() -> None:
    async with fakes() as world:
        world.cluster.fail_next(HEARTBEAT, 81)
        async with world.member() as member:
            await until(lambda: member.error is not None)
        assert isinstance(member.error, GroupMaxSizeReached)
        world.cluster.fail_next(HEARTBEAT, 69)
        async with world.member() as two:
            await until(lambda: two.error is not None)
        assert isinstance(two.error, GroupIdNotFound)
        async with world.member() as three:
            await until(lambda: split("t", 4, three))
            world.cluster.fail_next(HEARTBEAT, 69)
            await until(lambda: bool(three.lost))
            await until(lambda: split("t", 4, three))


@simulated(range(10))
async def test_a_fenced_member_releases_its_partitions_before_it_rejoins() -> None:
    async with fakes() as world, world.member() as member:
        await until(lambda: split("t", 4, member))
        member.may_acknowledge.clear()
        world.cluster.fail_next(HEARTBEAT, 110)
        await until(lambda: member.membership.lost)
        await asyncio.sleep(20)
        assert member.assignments[-1].lost == partitions("t", 0, 1, 2, 3)
        assert member.membership.lost
        member.may_acknowledge.set()
        await until(lambda: split("t", 4, member))
        assert not member.membership.lost


@simulated(range(5))
async def test_a_leave_ends_although_no_coordinator_answers() -> None:
    async with fakes() as world:
        async with world.member() as member:
            await until(lambda: split("t", 4, member))
            for node in world.cluster.brokers:
                world.cluster.freeze(node)
            async with asyncio.timeout(6):
                await member.membership.leave()
        assert member.membership.lost


@simulated(range(5))
async def test_heartbeats_continue_while_an_assignment_is_processed() -> None:
    async with fakes() as world, world.member() as member:
        await until(lambda: bool(member.assignments))
        member.may_acknowledge.clear()
        async with world.member(seed=7) as two:
            await until(lambda: len(member.owned) == 2)
            before = member.membership.deadline
            await asyncio.sleep(20)
            assert member.membership.deadline > before + 15
            assert not world.groups.given_up
            assert not two.owned  # revoked partitions are kept until they are acknowledged
            member.may_acknowledge.set()
            await until(lambda: split("t", 4, member, two))


@simulated(range(5))
async def test_an_assignment_skipped_for_a_rebalance_is_delivered_again() -> None:
    async with fakes() as world, world.member() as member:
        member.may_acknowledge.clear()
        await until(lambda: bool(member.assignments))
        assert not member.membership.rebalance_pending()
        async with world.member(seed=7) as two:
            await until(member.membership.rebalance_pending)
            member.may_acknowledge.set()
            await until(lambda: split("t", 4, member, two))
        await until(lambda: len(member.owned) == 4)
        reported = len(member.assignments)
        member.membership._target_changed.set()  # a wakeup without a new target is possible
        assert member.membership.rebalance_pending()
        await until(lambda: len(member.assignments) > reported)
        assert len(member.owned) == 4


@simulated(range(5))
async def test_a_thread_can_send_the_heartbeat_of_the_member() -> None:
    """A thread sends heartbeats while the event loop is blocked, also in a later epoch."""
    async with fakes() as world, world.member() as member:
        await until(lambda: split("t", 4, member))
        await until(lambda: _reported_partitions(member) == {0, 1, 2, 3})
        heartbeat = member.membership.heartbeat
        async with world.member(seed=7) as two:
            await until(lambda: split("t", 4, member, two))
            await until(lambda: _reported_partitions(member) == {n.partition for n in member.owned})
            assert heartbeat is not None
            address, message = member.membership.heartbeat
            connection = await world.cluster.open(address, world.cluster.config())
            answer = (await connection.request(message)).to_object()
            connection.close()
            assert (answer["error_code"], answer["member_epoch"]) == (0, member.epoch)
            now = asyncio.get_running_loop().time()
            member.membership.heartbeat_from_thread(now)
            assert member.membership.deadline == pytest.approx(now + 40.5)


def _reported_partitions(follower: Follower) -> set[int]:
    """Return the owned partitions of the follower's last heartbeat."""
    beat: Any = follower.membership.heartbeat
    rows = [] if beat is None else beat[1]._values["topic_partitions"]
    return {number for row in rows for number in row["partitions"]}


def test_an_invalid_config_is_refused() -> None:
    wrongs: list[dict[str, Any]] = [
        {"group_id": ""},
        {"group_instance_id": ""},
        {"rebalance_timeout_ms": 0},
        {"session_timeout_ms": "6s"},
    ]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ConsumerGroupConfig(**{"group_id": "g", **wrong})
