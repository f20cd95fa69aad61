"""The sticky assignor: balanced, with a minimum of moves."""

import itertools
import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncconsumer.group.zookeeper.assignors import GroupInfo, GroupMemberInfo, OwnerByPartition
from asyncconsumer.group.zookeeper.sticky import sticky
from tests.support.zookeeper_groups import even_groups, groups, random_group, with_owners

pytestmark = pytest.mark.fast


def cost(group: GroupInfo, assignment: OwnerByPartition) -> tuple[int, int]:
    """Return the imbalance of the loads and the number of unnecessary moves."""
    readers = group.subscriptions()
    moved = sum(
        owner in readers[p.topic] and assignment[p] != owner
        for p, owner in group.owners.items()
        if p in assignment
    )
    return sum(load**2 for load in Counter(assignment.values()).values()), moved


def best_cost(group: GroupInfo) -> tuple[int, int]:
    """Return the least cost of all assignments."""
    partitions, readers = group.subscribed_partitions(), group.subscriptions()
    choices = itertools.product(*(readers[p.topic] for p in partitions))
    return min(cost(group, dict(zip(partitions, chosen, strict=True))) for chosen in choices)


def small_group(random: Random) -> GroupInfo:
    """Return a group that is small enough to try all its assignments."""
    while True:
        topics = {topic: range(random.randint(1, 3)) for topic in "abc"}
        group = random_group(random, topics, members=3, streams=2)
        readers = group.subscriptions()
        if math.prod(len(readers[p.topic]) for p in group.subscribed_partitions()) <= 2000:
            return with_owners(random, group)


@settings(max_examples=50)
@given(group=st.randoms(use_true_random=False).map(small_group))
def test_no_assignment_is_more_balanced_or_moves_fewer_partitions(group: GroupInfo) -> None:
    assert cost(group, sticky(group)) == best_cost(group)


@given(group=groups)
@settings(max_examples=50)
def test_a_settled_group_is_unchanged(group: GroupInfo) -> None:
    settled = GroupInfo(group.members, group.partitions, sticky(group))
    assert sticky(settled) == settled.owners


@given(group=even_groups)
@settings(max_examples=50)
def test_loads_differ_by_one_with_equal_subscriptions(group: GroupInfo) -> None:
    (threads, *_) = group.subscriptions().values()
    loads = Counter(sticky(group).values())
    assert max(loads[t] for t in threads) - min(loads[t] for t in threads) <= 1


def group_of(*names: str, partitions: int, owners: OwnerByPartition | None = None) -> GroupInfo:
    return GroupInfo(
        [GroupMemberInfo(n, {"t": 1}) for n in names], {"t": range(partitions)}, owners or {}
    )


def moved(before: OwnerByPartition, after: OwnerByPartition) -> int:
    return sum(after[partition] != thread for partition, thread in before.items())


def test_a_new_member_gets_its_share_and_no_other_partition_moves() -> None:
    before = sticky(group_of("a", "b", partitions=12))
    after = sticky(group_of("a", "b", "c", partitions=12, owners=before))
    assert Counter(after.values()) == {"a-0": 4, "b-0": 4, "c-0": 4}
    assert moved(before, after) == 4


def test_only_the_partitions_of_a_leaving_member_move() -> None:
    before = sticky(group_of("a", "b", "c", partitions=12))
    after = sticky(group_of("a", "c", partitions=12, owners=before))
    assert Counter(after.values()) == {"a-0": 6, "c-0": 6}
    assert moved(before, after) == 4


def test_new_partitions_go_to_the_least_loaded_threads() -> None:
    before = sticky(group_of("a", "b", partitions=5))
    after = sticky(group_of("a", "b", partitions=8, owners=before))
    assert Counter(after.values()) == {"a-0": 4, "b-0": 4}
    assert moved(before, after) == 0


def test_load_is_moved_through_a_chain_of_threads() -> None:
    """Thread a owns all of t. Thread b can take some of it after it gives u to c."""
    members = [
        GroupMemberInfo("a", {"t": 1}),
        GroupMemberInfo("b", {"t": 1, "u": 1}),
        GroupMemberInfo("c", {"u": 1}),
    ]
    partitions = {"t": range(4), "u": range(2)}
    both = dict.fromkeys(GroupInfo(members, {"t": range(4)}).subscribed_partitions(), "a-0")
    had = both | dict.fromkeys(GroupInfo(members, {"u": range(2)}).subscribed_partitions(), "b-0")
    group = GroupInfo(members, partitions, had)
    after = sticky(group)
    assert Counter(after.values()) == {"a-0": 2, "b-0": 2, "c-0": 2}
    assert moved(had, after) == 4


def test_a_large_group_is_settled_by_few_searches() -> None:
    names = [f"m{n}" for n in range(40)]
    all_on_one = sticky(group_of("m0", partitions=4000))
    after = sticky(group_of(*names, partitions=4000, owners=all_on_one))
    assert set(Counter(after.values()).values()) == {100}
    assert moved(all_on_one, after) == 3900
