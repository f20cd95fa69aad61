"""A static leader that returns to its group, and partitions that were added meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncconsumer.errors import MalformedConsumerProtocol
from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.group.classic.description import GroupDescription
from asyncconsumer.group.classic.leader import JoinResult
from asyncconsumer.group.classic.leader_return import LeaderReturn
from asyncconsumer.group.subscription import PatternSubscription, Subscription, TopicSubscription
from asyncconsumer.net.discovery import PartitionNumbers
from asyncconsumer.protocol.classic_group import JOIN_GROUP
from asyncconsumer.protocol.subscription_codec import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from asyncconsumer.testing.fake_kafka import groups
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Address, MemberIdentity, TopicPartition
from tests.support.fake_classic_group import fake_cluster, open_member
from tests.support.helpers import until
from tests.support.real_classic_group import ClassicMember, generation_of

if TYPE_CHECKING:
    from asyncconsumer.group.classic.coordinator_client import CoordinatorClient
    from asyncconsumer.group.classic.subscribed_topics import SubscribedTopics

pytestmark = pytest.mark.fast

SEEDS = range(3)
DESCRIBE = 15
COORDINATOR_NOT_AVAILABLE, GROUP_AUTHORIZATION_FAILED = 15, 30
ASSIGNORS = [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]
REFRESH_MS = 2_000
SEVERAL_CHECKS = 10.0  # seconds


@pytest.fixture(params=["skip_assignment", "version 8"])
def responses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set one of both kinds of responses to a returning leader."""
    if request.param == "version 8":
        older = JOIN_GROUP._replace(versions=range(2, 9))
        monkeypatch.setattr(groups, "JOIN_GROUP", older)


@asynccontextmanager
async def static(
    cluster: GroupCluster,
    instance_id: str,
    topics: Subscription | None = None,
    assignors: Sequence[Assignor] = (),
    **options: Any,
) -> AsyncIterator[ClassicMember]:
    async with open_member(
        cluster,
        topics,
        assignors,
        group_instance_id=instance_id,
        metadata_refresh_ms=REFRESH_MS,
        **options,
    ) as following:
        yield following


def all_assigned(cluster: GroupCluster, *members: ClassicMember) -> Callable[[], bool]:
    def check() -> bool:
        owned = [tp for following in members for tp in following.owned]
        return sorted(owned) == sorted(
            TopicPartition(name, partition.number)
            for name, topic in cluster.view.topics.items()
            for partition in topic.partitions
        )

    return check


@pytest.mark.usefixtures("responses")
@simulated(seeds=SEEDS)
async def test_partitions_for_another_member_are_assigned_after_the_return() -> None:
    """The leader's own partitions stay the same, so they do not show the change."""
    async with fake_cluster(partitions=3) as cluster, static(cluster, "a") as leader:
        await until(all_assigned(cluster, leader))
        async with static(cluster, "b") as follower:
            await until(lambda: (leader.numbers, follower.numbers) == ({0, 1}, {2}))
            leader.task.cancel()
            await leader.membership.leave()  # static members send no LeaveGroup
            cluster.add_partitions("t", 4)
            async with static(cluster, "a") as returned:
                await until(all_assigned(cluster, returned, follower))


@pytest.mark.usefixtures("responses")
@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
@simulated(seeds=SEEDS)
async def test_a_return_without_a_change_starts_no_rebalance(
    assignor: Callable[[], Assignor],
) -> None:
    async with fake_cluster(partitions=5) as cluster:
        cluster.add_topic("other", 2)
        both = TopicSubscription(["t", "other", "missing"])
        async with static(cluster, "b", TopicSubscription(["t"]), [assignor()]) as follower:
            async with static(cluster, "a", both, [assignor()]) as first:
                await until(all_assigned(cluster, first, follower))
                await asyncio.sleep(SEVERAL_CHECKS)
                generation = generation_of(follower)
            for instance_id in ("a", "b"):
                topics = both if instance_id == "a" else TopicSubscription(["t"])
                async with static(cluster, instance_id, topics, [assignor()]) as returned:
                    await asyncio.sleep(SEVERAL_CHECKS)
                    assert generation_of(returned) == generation
                    assert len(returned.history) == 1


@pytest.mark.usefixtures("responses")
@simulated(seeds=SEEDS)
async def test_a_returned_leader_watches_the_topics_of_all_members() -> None:
    async with fake_cluster(partitions=2) as cluster:
        cluster.add_topic("other", 1)
        async with static(cluster, "a") as leader:
            await until(lambda: leader.numbers == {0, 1})
            async with static(cluster, "b", TopicSubscription(["other"])) as follower:
                await until(all_assigned(cluster, leader, follower))
                leader.task.cancel()
                await leader.membership.leave()
                async with static(cluster, "a") as returned:
                    await asyncio.sleep(SEVERAL_CHECKS)
                    assert len(returned.history) == 1
                    cluster.add_partitions("other", 2)
                    await until(all_assigned(cluster, returned, follower))


@pytest.mark.usefixtures("responses")
@simulated(seeds=SEEDS)
async def test_a_new_topic_that_matches_the_pattern_is_assigned() -> None:
    async with fake_cluster(partitions=2) as cluster:
        async with static(cluster, "a", PatternSubscription(".*")) as leader:
            await until(all_assigned(cluster, leader))
        cluster.add_topic("new", 2)
        async with static(cluster, "a", PatternSubscription(".*")) as returned:
            await until(all_assigned(cluster, returned))


@pytest.mark.usefixtures("responses")
@simulated(seeds=SEEDS)
async def test_a_failed_description_is_requested_again() -> None:
    async with fake_cluster(partitions=3) as cluster:
        async with static(cluster, "a") as leader:
            await until(all_assigned(cluster, leader))
        cluster.add_partitions("t", 4)
        cluster.fail_next(DESCRIBE, COORDINATOR_NOT_AVAILABLE, times=2)
        async with static(cluster, "a") as returned:
            await until(all_assigned(cluster, returned))


@simulated(seeds=SEEDS)
async def test_a_leader_without_descriptions_detects_later_changes() -> None:
    async with fake_cluster(partitions=3) as cluster:
        async with static(cluster, "a") as leader:
            await until(all_assigned(cluster, leader))
        cluster.fail_next(DESCRIBE, GROUP_AUTHORIZATION_FAILED, times=100)
        async with static(cluster, "a") as returned:
            await asyncio.sleep(SEVERAL_CHECKS)
            cluster.add_partitions("t", 4)
            await until(all_assigned(cluster, returned))


@pytest.mark.usefixtures("responses")
@simulated(seeds=SEEDS)
async def test_unknown_racks_of_the_last_assignment_start_no_rebalance() -> None:
    async with GroupCluster(Random(1), brokers=3, racks=("x", "y", "z")) as cluster:
        cluster.add_topic("t", 3, replicas=1)
        for _ in range(2):
            async with static(cluster, "a", client_rack="x") as leader:
                await until(all_assigned(cluster, leader))
                await asyncio.sleep(SEVERAL_CHECKS)
                assert generation_of(leader) == 1
                assert len(leader.history) == 1


# --- the decision --------------------------------------------------------------------------------


def joined(leader: str, *, instance_id: str | None = "a", decides: bool = False) -> JoinResult:
    identity = MemberIdentity("a-2", 1, instance_id)
    return JoinResult(identity, "range", leader, decides, (), Address("broker", 9092))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (joined("a-2"), True),  # `skip_assignment`
        (joined("a-1"), True),  # its previous member id
        (joined("a-b-1"), True),  # perhaps another member
        (joined("b-1"), False),
        (joined("ab-1"), False),
        (joined("a-2", decides=True), False),
        (joined("a-1", instance_id=None), False),
    ],
)
def test_only_a_static_member_can_be_a_returned_leader(
    result: JoinResult, *, expected: bool
) -> None:
    assert result.may_be_returned_leader is expected


class Describing:
    """A client with prepared descriptions, and a record of resumed topics."""

    def __init__(self, *descriptions: GroupDescription) -> None:
        self.descriptions = list(descriptions)
        self.resumed: list[PartitionNumbers] = []
        self.check = LeaderReturn(cast("CoordinatorClient", self), cast("SubscribedTopics", self))

    async def describe(self) -> GroupDescription:
        await asyncio.sleep(1)
        return self.descriptions.pop(0)

    def resume(self, assigned: PartitionNumbers) -> None:
        self.resumed.append(assigned)


ASSIGNED: PartitionNumbers = {"t": (0, 1)}


def described(*member_ids: str) -> GroupDescription:
    return GroupDescription(stable=True, member_ids=frozenset(member_ids), assigned=ASSIGNED)


@pytest.mark.parametrize(
    ("leader", "resumes"), [("a-2", True), ("a-1", True), ("a-b-1", False)], ids=str
)
@simulated(seeds=[0])
async def test_a_follower_does_not_resume_the_checks_of_the_leader(
    leader: str, *, resumes: bool
) -> None:
    parts = Describing(described("a-2", "a-b-1"))
    parts.check.on_generation(joined(leader))
    await parts.check.wait(0.0)
    await parts.check.resume()
    assert parts.resumed == ([ASSIGNED] if resumes else [])
    await parts.check.resume()  # nothing is pending


@simulated(seeds=[0])
async def test_a_group_that_rebalances_is_described_again() -> None:
    members = frozenset({"a-2"})
    parts = Describing(
        GroupDescription(stable=False, member_ids=members, assigned={}), described("a-2")
    )
    parts.check.on_generation(joined("a-2"))
    await parts.check.resume()
    assert not parts.resumed
    await parts.check.resume()
    assert parts.resumed == [ASSIGNED]


@simulated(seeds=[0])
async def test_the_description_of_an_earlier_generation_is_dropped() -> None:
    parts = Describing(described("a-2"))
    parts.check.on_generation(joined("a-2"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(parts.check.resume())
        await asyncio.sleep(0.5)
        parts.check.on_generation(joined("a-2", decides=True))
    assert not parts.resumed


# --- descriptions --------------------------------------------------------------------------------


def row(member_id: str, topics: list[str], *assigned: TopicPartition) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "group_instance_id": None,
        "metadata": ConsumerProtocolSubscription(topics).encode(),
        "assignment": ConsumerProtocolAssignment(assigned).encode() if assigned else b"",
    }


def test_a_description_has_the_partitions_of_all_members() -> None:
    members = [
        row("m", ["t", "u"], TopicPartition("t", 2), TopicPartition("t", 0)),
        row("n", ["t", "missing"], TopicPartition("t", 1)),
        row("o", ["t"]),
    ]
    group = GroupDescription.of({"group_state": "Stable", "members": members})
    assert group.stable
    assert group.member_ids == {"m", "n", "o"}
    assert group.assigned == {"t": (0, 1, 2), "u": (), "missing": ()}
    group = GroupDescription.of({"group_state": "PreparingRebalance", "members": members})
    assert group == GroupDescription(stable=False, member_ids=frozenset("mno"), assigned={})


def test_a_malformed_assignment_is_an_error() -> None:
    members = [row("m", ["t"]) | {"assignment": b"\0"}]
    with pytest.raises(MalformedConsumerProtocol):
        GroupDescription.of({"group_state": "Stable", "members": members})
