"""Properties of all assignors of the classic protocol."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    PartitionsByMember,
    Racks,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.group.assignors.sticky_general import _Moved
from asyncconsumer.protocol.subscription_codec import StickyUserData
from asyncconsumer.types import TopicPartition
from tests.support.classic_groups import ASSIGNORS, RandomGroup, Rebalance, is_sound, still_owned

pytestmark = pytest.mark.fast

randoms = st.randoms(use_true_random=False)
names = st.sampled_from(list(ASSIGNORS))
sticky_names = st.sampled_from(["sticky", "cooperative-sticky"])


def partitions(topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def owning(
    name: str, subscription: MemberSubscription, owned: list[TopicPartition]
) -> MemberSubscription:
    """Return the same member with these partitions assigned."""
    user_data = StickyUserData(owned, 1).encode() if name == "sticky" else None
    return replace(subscription, owned_partitions=owned, generation_id=1, user_data=user_data)


def settled(
    name: str, topics: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> Rebalance:
    """A group after rebalances without any change."""
    assignment: PartitionsByMember = {member: [] for member in members}
    for _ in range(3):
        members = {
            m: owning(name, subscription, assignment[m]) for m, subscription in members.items()
        }
        assignment = ASSIGNORS[name]().assign(topics, members)
    members = {m: owning(name, subscription, assignment[m]) for m, subscription in members.items()}
    return Rebalance(name, dict(topics), dict(members), assignment)


@settings(max_examples=50, deadline=None)
@given(random=randoms, name=names, even=st.booleans(), racks=st.booleans())
def test_each_subscribed_partition_is_assigned_once(
    random: Random, name: str, even: bool, racks: bool
) -> None:
    for rebalance in RandomGroup(random, name, even=even, racks=racks).rebalances(5):
        assert is_sound(rebalance, rebalance.assignment)


@settings(max_examples=50, deadline=None)
@given(random=randoms, even=st.booleans(), racks=st.booleans())
def test_partitions_of_another_member_are_not_assigned(
    random: Random, even: bool, racks: bool
) -> None:
    for rebalance in RandomGroup(random, "cooperative-sticky", even=even, racks=racks).rebalances(
        5
    ):
        for member, assigned in rebalance.assignment.items():
            new = set(assigned).difference(rebalance.members[member].owned_partitions)
            assert not any(still_owned(rebalance, partition, member) for partition in new)


@settings(max_examples=50, deadline=None)
@given(random=randoms, name=sticky_names, even=st.booleans())
def test_a_settled_group_is_balanced_and_stable(random: Random, name: str, even: bool) -> None:
    *_, last = RandomGroup(random, name, even=even).rebalances(3)
    group = settled(name, last.topics, last.members)
    assert is_sound(
        replace(group, assignor="sticky"), group.assignment
    )  # all partitions are assigned
    loads = {member: len(assigned) for member, assigned in group.assignment.items()}
    for member, assigned in group.assignment.items():
        for partition in assigned:
            for other, subscription in group.members.items():
                if partition.topic in subscription.topics:
                    assert loads[member] <= loads[other] + 1
    again = ASSIGNORS[name]().assign(group.topics, group.members)
    assert {m: set(assigned) for m, assigned in again.items()} == {
        m: set(assigned) for m, assigned in group.assignment.items()
    }


@settings(max_examples=50, deadline=None)
@given(random=randoms, name=sticky_names)
def test_with_equal_subscriptions_partitions_move_only_to_a_new_member(
    random: Random, name: str
) -> None:
    *_, last = RandomGroup(random, name, even=True).rebalances(2)
    group = settled(name, last.topics, last.members)
    (first, *_) = group.members.values()
    joined = {**group.members, "new": MemberSubscription(first.topics)}
    after = ASSIGNORS[name]().assign(group.topics, joined)
    for member, assigned in group.assignment.items():
        assert set(after[member]) <= set(assigned)
    if name == "cooperative-sticky":
        assert after["new"] == []  # its partitions are revoked first

    for leaver in list(group.members):
        rest = {m: subscription for m, subscription in group.members.items() if m != leaver}
        after = ASSIGNORS[name]().assign(group.topics, rest)
        for member in rest:
            assert set(after[member]) >= set(group.assignment[member])


def test_static_members_are_sorted_first_by_instance_id() -> None:
    members = {
        "a": MemberSubscription(("t",)),
        "b": MemberSubscription(("t",), group_instance_id="2"),
        "c": MemberSubscription(("t",), group_instance_id="1"),
    }
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert assignor.assign({"t": 3}, members) == {
            "c": partitions("t", [0]),
            "b": partitions("t", [1]),
            "a": partitions("t", [2]),
        }


def test_range_and_round_robin_differ_over_several_topics() -> None:
    members = {"a": MemberSubscription(("t", "u")), "b": MemberSubscription(("t", "u"))}
    topics = {"t": 3, "u": 3, "unread": 5}
    by_range = RangeAssignor().assign(topics, members)
    assert sorted(by_range["a"]) == [*partitions("t", [0, 1]), *partitions("u", [0, 1])]
    in_turns = RoundRobinAssignor().assign(topics, members)
    assert in_turns["a"] == [*partitions("t", [0, 2]), *partitions("u", [1])]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_groups_without_partitions_get_empty_assignments(name: str) -> None:
    assignor = ASSIGNORS[name]()
    assert assignor.assign({"t": 1}, {}) == {}
    assert assignor.assign({"t": 1}, {"a": MemberSubscription(())}) == {"a": []}
    assert assignor.assign({"t": 0}, {"a": MemberSubscription(("t", "missing"))}) == {"a": []}
    alone = {"a": MemberSubscription(()), "b": MemberSubscription(("t", "t"))}
    assert assignor.assign({"t": 1}, alone) == {"a": [], "b": partitions("t", [0])}


def test_a_sticky_member_reports_its_last_assignment() -> None:
    assignor = StickyAssignor()
    assert assignor.user_data(["t"], [], -1) is None
    assignor.assigned(partitions("t", [1, 2]), 4)
    reported = assignor.user_data(["t"], [], 4)  # the member owns no partition when it joins
    assert reported == StickyUserData(partitions("t", [1, 2]), 4).encode()
    members = {
        "a": MemberSubscription(("t",), user_data=reported),
        "b": MemberSubscription(("t",), user_data=b"no such thing"),
    }
    assert StickyAssignor().assign({"t": 4}, members)["a"] == partitions("t", [1, 2])


def test_moved_partitions_are_assigned_after_their_revocation() -> None:
    both = {
        "a": MemberSubscription(("t",), None, partitions("t", range(4)), 1),
        "b": MemberSubscription(("t",)),
    }
    assignor = CooperativeStickyAssignor()
    assert assignor.cooperative
    assert assignor.assign({"t": 4}, both) == {"a": partitions("t", [0, 1]), "b": []}
    both["a"] = MemberSubscription(("t",), None, partitions("t", [0, 1]), 2)
    assert assignor.assign({"t": 4}, both) == {
        "a": partitions("t", [0, 1]),
        "b": partitions("t", [2, 3]),
    }


@pytest.mark.parametrize(("older", "newer"), [("a", "b"), ("b", "a")])
def test_of_two_owners_the_one_of_the_newer_generation_counts(older: str, newer: str) -> None:
    members = {
        older: MemberSubscription(("t",), None, partitions("t", [0, 1]), 6),
        newer: MemberSubscription(("t",), None, partitions("t", [0]), 7),
    }
    after = CooperativeStickyAssignor().assign({"t": 2}, members)
    assert after == {older: partitions("t", [1]), newer: partitions("t", [0])}


def test_the_generation_is_read_from_user_data_if_no_field_has_it() -> None:
    reported = CooperativeStickyAssignor().user_data([], [], 7)
    members = {
        "a": MemberSubscription(("t",), None, partitions("t", [0, 1]), 6),
        "b": MemberSubscription(("t",), reported, partitions("t", [0])),
    }
    after = CooperativeStickyAssignor().assign({"t": 2}, members)
    assert after == {"a": partitions("t", [1]), "b": partitions("t", [0])}


def in_racks(**racks: str | None) -> dict[str, MemberSubscription]:
    return {member: MemberSubscription(("t", "u"), rack_id=rack) for member, rack in racks.items()}


def placed(topic: str, racks: str) -> Racks:
    """Return the racks of partitions, each given by a character, or by a point if it has none."""
    return {TopicPartition(topic, n): set(rack) - {"."} for n, rack in enumerate(racks)}


NEAR = pytest.mark.parametrize("name", ["range", "sticky", "cooperative-sticky"])


@NEAR
def test_members_get_partitions_of_their_rack(name: str) -> None:
    members, assign = in_racks(a="x", b="y", c="z"), ASSIGNORS[name]().assign
    assert assign({"t": 6}, members, placed("t", "zyxxyz")) == {
        "a": partitions("t", [2, 3]),
        "b": partitions("t", [1, 4]),
        "c": partitions("t", [0, 5]),
    }
    uneven = members | {"d": MemberSubscription(("u",), rack_id="x")}
    racks = {**placed("t", "zyxxyz"), **placed("u", "zx")}
    after = assign({"t": 6, "u": 2}, uneven, racks)
    assert TopicPartition("u", 1) in after["d" if name != "range" else "a"]
    assert set(partitions("t", [2, 3])) <= set(after["a"])


@NEAR
def test_balance_has_priority_over_racks(name: str) -> None:
    members = in_racks(a="x", b="y", c=None)
    after = ASSIGNORS[name]().assign({"t": 6}, members, placed("t", "xxxxx."))
    assert sorted(map(len, after.values())) == [2, 2, 2]
    assert after["a"] == partitions("t", [0, 1])
    members = in_racks(a="x", b="x", c="y", d="y")
    after = ASSIGNORS[name]().assign({"t": 5}, members, placed("t", "xxxx."))
    assert sorted(map(len, after.values())) == [1, 1, 1, 2]


@NEAR
@pytest.mark.parametrize(
    ("racks", "member_racks"),
    [
        (None, {"a": "y", "b": "x"}),
        (placed("t", "...."), {"a": "y", "b": "x"}),  # brokers report no rack
        (placed("t", "xyxy"), {"a": None, "b": ""}),  # members do not
        (placed("t", "xyxy"), {"a": "v", "b": "w"}),  # both do, of different ones
        (dict.fromkeys(placed("t", "xxxx"), ("x", "y")), {"a": "y", "b": "x"}),  # all have it all
    ],
)
def test_uninformative_racks_do_not_change_the_assignment(
    name: str, racks: Racks | None, member_racks: dict[str, str | None]
) -> None:
    reported, assign = in_racks(**member_racks), ASSIGNORS[name]().assign
    reported["a"] = owning(name, reported["a"], partitions("t", [1, 2]))
    without = {
        member: replace(subscription, rack_id=None) for member, subscription in reported.items()
    }
    assert assign({"t": 4}, reported, racks) == assign({"t": 4}, without)


def test_range_prefers_co_partitioning_to_racks() -> None:
    members, assign = in_racks(a="x", b="y"), RangeAssignor().assign
    racks = {**placed("t", "yxyx"), **placed("u", "yxxy")}
    assert assign({"t": 4, "u": 4}, members, racks) == {
        "a": [*partitions("t", [1, 2]), *partitions("u", [1, 2])],
        "b": [*partitions("t", [0, 3]), *partitions("u", [0, 3])],
    }
    everywhere = dict.fromkeys(placed("u", "...."), ("x", "y"))
    assert assign({"t": 4, "u": 4}, members, {**racks, **everywhere}) == {
        "a": [*partitions("t", [1, 3]), *partitions("u", [1, 3])],
        "b": [*partitions("t", [0, 2]), *partitions("u", [0, 2])],
    }
    apart = assign({"t": 4, "u": 5}, members, {**racks, TopicPartition("u", 4): {"x"}})
    assert apart["b"] == [*partitions("t", [0, 2]), *partitions("u", [0, 3])]


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize("others", [("t", "u"), ("t",)])
def test_a_sticky_member_gives_up_partitions_of_other_racks(
    name: str, others: tuple[str, ...]
) -> None:
    """The member keeps the partitions of its rack."""
    members = {
        "a": owning(name, MemberSubscription(("t", "u"), rack_id="x"), partitions("t", [0, 1])),
        "b": owning(name, MemberSubscription(others, rack_id="y"), partitions("t", [2, 3])),
    }
    racks = placed("t", "xyxy")
    after = ASSIGNORS[name]().assign({"t": 4}, members, racks)
    if name == "cooperative-sticky":
        assert after == {"a": partitions("t", [0]), "b": partitions("t", [3])}
        members = {m: owning(name, subscription, after[m]) for m, subscription in members.items()}
        after = ASSIGNORS[name]().assign({"t": 4}, members, racks)
    assert after == {"a": partitions("t", [0, 2]), "b": partitions("t", [3, 1])}


def test_a_subscription_of_a_join_response_has_the_instance_id() -> None:
    subscription = MemberSubscription(("t",), b"x", (TopicPartition("t", 3),), 5, "north")
    assert MemberSubscription.of(subscription.encode(), "one") == replace(
        subscription, group_instance_id="one"
    )


def test_moved_partitions_have_the_order_of_a_java_hash_set() -> None:
    """With 13 entries a HashSet has 32 buckets, and keeps them. (The hash of "t" is 116.)"""
    moved = _Moved()
    for number in range(13):
        moved.add(TopicPartition("t", number))
    by_bucket = {(31 * (31 + number) + 116) % 32: number for number in range(13)}
    order = [by_bucket[bucket] for bucket in sorted(by_bucket)]
    assert order != sorted(order, key=lambda number: (31 * (31 + number) + 116) % 16)
    for number in order:
        moved.add(TopicPartition("t", order[-1]))  # already a member of the set
        assert moved.first() == TopicPartition("t", number)
        moved.discard(TopicPartition("t", number))
    assert len(moved) == 0


class FirstTakesAll(Assignor):
    """The example of the Protocol's documentation."""

    name = "first-takes-all"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> PartitionsByMember:
        first, *others = sorted(subscriptions)
        requested = [
            TopicPartition(topic, n)
            for topic in subscriptions[first].topics
            for n in range(partitions.get(topic, 0))
        ]
        return {first: requested} | {member: [] for member in others}


def test_a_custom_assignor_needs_a_name_and_assign_only() -> None:
    assignor = FirstTakesAll()
    assert (assignor.cooperative, assignor.user_data([], [], 1)) == (False, None)
    assignor.assigned([], 1)
    members = {"b": MemberSubscription(("t",)), "a": MemberSubscription(("t",))}
    assert assignor.assign({"t": 2}, members) == {"a": partitions("t", [0, 1]), "b": []}
