"""Members of KIP-848 groups on a fake Kafka: what a real one does not do on demand."""

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
from tests.consumer_group.members import Follower, member, partitions, split
from tests.helpers import until

pytestmark = pytest.mark.fast

HEARTBEAT = 68
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Recording(ConsumerGroups):
    """Remembers what was asked."""

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

    def member(self, wanted: Any = ("t",), **options: Any) -> Any:
        more = {"opener": self.cluster.open, "seed": len(self.groups.groups), **options}
        return member(self.cluster.config(), "g", wanted, **more)

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
async def test_a_lost_answer_costs_nothing() -> None:
    async with fakes() as world, world.member() as one:
        await until(lambda: split("t", 4, one))
        for fate in (Fate.LOST_AFTER, Fate.LOST_BEFORE, Fate.LOST_AFTER):
            world.groups.fates.append(fate)
            async with world.member(seed=7) as two:
                await until(lambda: split("t", 4, one, two))
            await until(lambda: split("t", 4, one))
        assert not one.lost
        assert not world.groups.given_up


@simulated(range(5))
async def test_everything_is_said_again_after_an_answer_was_lost() -> None:
    async with fakes() as world, world.member() as one:
        await until(lambda: split("t", 4, one))
        await until(lambda: len(world.groups.asked) > 2)
        assert world.groups.asked[-1]["subscribed_topic_names"] is None
        world.groups.fates.append(Fate.LOST_AFTER)
        await until(lambda: not world.groups.fates)
        said = len(world.groups.asked)
        await until(lambda: len(world.groups.asked) > said)
        again = world.groups.asked[-1]
        assert (again["subscribed_topic_names"], again["rebalance_timeout_ms"]) == (["t"], 300_000)
        assert again["topic_partitions"]


@simulated(range(5))
async def test_the_first_assignment_waits_for_the_names_of_its_topics() -> None:
    async with fakes() as world:
        topic_id = world.cluster.add_topic("t2", 1)
        world.cluster.view.names.pop(topic_id.bytes)
        async with world.member(PatternSubscription("nothing", text="t2")) as one:
            await until(lambda: one.epoch > 0)
            await asyncio.sleep(20)
            assert not one.assignments
            world.cluster.view.names[topic_id.bytes] = "t2"
            await until(lambda: one.has == partitions("t2", 0))


@simulated(range(10))
async def test_a_coordinator_that_moves_is_followed_without_a_rebalance() -> None:
    async with fakes() as world, world.member() as one:
        await until(lambda: split("t", 4, one))
        told, epoch = len(one.assignments), one.epoch
        for node in (1, 2, 3):
            world.groups.move("g", node)
            address = world.cluster.brokers[node].place.address
            await until(lambda: one.membership.heartbeat[0] == address)  # noqa: B023
        assert (len(one.assignments), one.epoch) == (told, epoch)


@simulated(range(10))
async def test_topics_are_not_acknowledged_before_their_names_are_known() -> None:
    async with fakes() as world, world.member(PatternSubscription("t.*")) as one:
        await until(lambda: split("t", 4, one))
        for node in world.cluster.brokers:
            world.cluster.go_stale(node)
        topic_id = world.cluster.add_topic("t2", 1)
        for broker in world.cluster.brokers.values():  # metadata is behind, the coordinator is not
            broker.view.topics["t2"] = world.cluster.view.topics["t2"]
        group = world.groups.groups["g"]
        await until(lambda: any((topic_id, 0) in m.assigned for m in group.members.values()))
        await asyncio.sleep(30)
        assert one.has == partitions("t", 0, 1, 2, 3)
        for node in world.cluster.brokers:
            world.cluster.catch_up(node)
        await until(lambda: one.has == partitions("t", 0, 1, 2, 3) | partitions("t2", 0))
        assert one.assignments[-1].fresh == partitions("t2", 0)


@simulated(range(10))
async def test_an_older_coordinator_is_given_the_topics_that_match() -> None:
    async with (
        fakes(versions={HEARTBEAT: 0}) as world,
        world.member(PatternSubscription("t.*")) as one,
    ):
        await until(lambda: split("t", 4, one))
        assert not one.assignments[-1].fresh
        world.cluster.add_topic("other", 1)
        world.cluster.add_topic("t2", 1)
        await until(lambda: TopicPartition("t2", 0) in one.has)
        assert one.has == partitions("t", 0, 1, 2, 3) | partitions("t2", 0)
        assert one.assignments[-1].fresh == partitions("t2", 0)
        (known,) = world.groups.groups["g"].members.values()
        assert (sorted(known.topics), known.regex) == (["t", "t2"], "")


@pytest.mark.parametrize("switched_off", [False, True])
def test_who_cannot_speak_the_protocol_is_told_apart(*, switched_off: bool) -> None:
    @simulated(range(3))
    async def play() -> None:
        last = {} if switched_off else {HEARTBEAT: -1}
        async with fakes(versions=last) as world:
            if switched_off:
                world.cluster.fail_next(HEARTBEAT, 35)
            async with world.member() as one:
                await until(lambda: one.error is not None)
            assert isinstance(one.error, ConsumerProtocolUnsupported)
            assert one.membership.lost

    play()


@simulated(range(3))
async def test_a_group_that_is_full_is_an_error_and_one_that_is_gone_only_for_who_joins() -> None:
    async with fakes() as world:
        world.cluster.fail_next(HEARTBEAT, 81)
        async with world.member() as one:
            await until(lambda: one.error is not None)
        assert isinstance(one.error, GroupMaxSizeReached)
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
async def test_who_is_fenced_lets_go_before_it_joins_again() -> None:
    async with fakes() as world, world.member() as one:
        await until(lambda: split("t", 4, one))
        one.willing.clear()
        world.cluster.fail_next(HEARTBEAT, 110)
        await until(lambda: one.membership.lost)
        await asyncio.sleep(20)
        assert one.assignments[-1].lost == partitions("t", 0, 1, 2, 3)
        assert one.membership.lost
        one.willing.set()
        await until(lambda: split("t", 4, one))
        assert not one.membership.lost


@simulated(range(5))
async def test_a_farewell_ends_though_nobody_hears_it() -> None:
    async with fakes() as world:
        async with world.member() as one:
            await until(lambda: split("t", 4, one))
            for node in world.cluster.brokers:
                world.cluster.freeze(node)
            async with asyncio.timeout(6):
                await one.membership.leave()
        assert one.membership.lost


@simulated(range(5))
async def test_heartbeats_go_on_while_an_assignment_is_dealt_with() -> None:
    async with fakes() as world, world.member() as one:
        await until(lambda: bool(one.assignments))
        one.willing.clear()
        async with world.member(seed=7) as two:
            await until(lambda: len(one.has) == 2)
            before = one.membership.deadline
            await asyncio.sleep(20)
            assert one.membership.deadline > before + 15
            assert not world.groups.given_up
            assert not two.has  # what was taken away is kept for us until there is a receipt
            one.willing.set()
            await until(lambda: split("t", 4, one, two))


@simulated(range(5))
async def test_who_is_held_up_gives_way_and_is_told_again_what_it_had_not_begun() -> None:
    async with fakes() as world, world.member() as one:
        one.willing.clear()
        await until(lambda: bool(one.assignments))
        assert not one.membership.rebalance_pending()
        async with world.member(seed=7) as two:
            await until(one.membership.rebalance_pending)
            one.willing.set()
            await until(lambda: split("t", 4, one, two))
        await until(lambda: len(one.has) == 4)
        told = len(one.assignments)
        one.membership._news.set()  # it may have been for nothing
        assert one.membership.rebalance_pending()
        await until(lambda: len(one.assignments) > told)
        assert len(one.has) == 4


@simulated(range(5))
async def test_another_may_send_what_keeps_us_alive() -> None:
    """As a thread does while the event loop is blocked; also when the group has moved on."""
    async with fakes() as world, world.member() as one:
        await until(lambda: split("t", 4, one))
        await until(lambda: _said(one) == {0, 1, 2, 3})
        kept = one.membership.heartbeat
        async with world.member(seed=7) as two:
            await until(lambda: split("t", 4, one, two))
            await until(lambda: _said(one) == {n.partition for n in one.has})
            assert kept is not None
            address, message = one.membership.heartbeat
            connection = await world.cluster.open(address, world.cluster.config())
            answer = (await connection.request(message)).to_object()
            connection.close()
            assert (answer["error_code"], answer["member_epoch"]) == (0, one.epoch)
            now = asyncio.get_running_loop().time()
            one.membership.heartbeat_from_thread(now)
            assert one.membership.deadline == pytest.approx(now + 40.5)


def _said(follower: Follower) -> set[int]:
    """What its heartbeat for others says that it owns."""
    beat: Any = follower.membership.heartbeat
    rows = [] if beat is None else beat[1]._values["topic_partitions"]
    return {number for row in rows for number in row["partitions"]}


def test_a_config_that_makes_no_sense_is_refused() -> None:
    wrongs: list[dict[str, Any]] = [
        {"group_id": ""},
        {"group_instance_id": ""},
        {"rebalance_timeout_ms": 0},
        {"session_timeout_ms": "6s"},
    ]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ConsumerGroupConfig(**{"group_id": "g", **wrong})
