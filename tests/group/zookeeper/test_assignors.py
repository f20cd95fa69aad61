"""Properties of the ZooKeeper assignors."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings

from asyncconsumer import errors
from asyncconsumer.group.zookeeper.assignors import (
    STRATEGIES,
    BrokerPartition,
    GroupInfo,
    GroupMemberInfo,
    by_broker_range,
    by_range,
    consumer_of,
    partitions_of_consumer,
    restricted_to,
    round_robin,
    round_robin_0_8,
    round_robin_0_10,
)
from asyncconsumer.protocol.java_hash import fetcher_id, string_hash, utf16
from asyncconsumer.types import TopicPartition
from tests.support.zookeeper_groups import even_groups, groups

pytestmark = pytest.mark.fast

some = settings(max_examples=40)


def owned(assignment: dict[TopicPartition, str]) -> dict[str, list[str]]:
    """Return the partitions of each thread, as texts."""
    result: dict[str, list[str]] = {}
    for partition, thread in sorted(assignment.items()):
        result.setdefault(thread, []).append(f"{partition.topic}{partition.partition}")
    return result


# -- properties of all assignors


@pytest.mark.parametrize("name", ["range", "roundrobin", "roundrobin-0.10", "sticky"])
@given(group=groups)
@some
def test_each_partition_goes_to_one_thread_that_reads_its_topic(
    name: str, group: GroupInfo
) -> None:
    assignment = STRATEGIES[name](group)
    assert list(assignment) == group.subscribed_partitions()
    readers = group.subscriptions()
    assert all(thread in readers[partition.topic] for partition, thread in assignment.items())


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@given(group=even_groups)
@some
def test_every_member_computes_the_same_assignment(name: str, group: GroupInfo) -> None:
    """The order in which ZooKeeper lists members, topics and partitions does not matter."""
    assignment = STRATEGIES[name](group)
    members, topics = list(group.members), list(group.partitions.items())
    Random(1).shuffle(members)
    Random(2).shuffle(topics)
    shuffled = GroupInfo(
        [GroupMemberInfo(m.consumer_id, dict(reversed(list(m.streams.items())))) for m in members],
        {topic: sorted(numbers, reverse=True) for topic, numbers in topics},
        dict(reversed(list(group.owners.items()))),
    )
    assert STRATEGIES[name](shuffled) == assignment


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_groups_without_partitions_have_an_empty_assignment(name: str) -> None:
    assert STRATEGIES[name](GroupInfo([], {"t": range(3)})) == {}
    assert STRATEGIES[name](GroupInfo([GroupMemberInfo("c", {})], {"t": range(3)})) == {}
    assert STRATEGIES[name](GroupInfo([GroupMemberInfo("c", {"missing": 1})], {})) == {}


# -- range


@given(group=groups)
@some
def test_ranges_are_contiguous_and_differ_by_one_in_size(group: GroupInfo) -> None:
    assignment = by_range(group)
    for topic, threads in group.subscriptions().items():
        owners = [thread for partition, thread in assignment.items() if partition.topic == topic]
        assert owners == sorted(owners, key=threads.index)
        counts = [Counter(owners)[thread] for thread in threads]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] - counts[-1] <= 1


def test_threads_sort_as_texts_so_that_10_precedes_2() -> None:
    group = GroupInfo([GroupMemberInfo("c", {"t": 11})], {"t": range(4)})
    assert owned(by_range(group)) == {
        "c-0": ["t0"],
        "c-1": ["t1"],
        "c-10": ["t2"],
        "c-2": ["t3"],
    }


def test_texts_sort_by_their_utf_16_units() -> None:
    group = GroupInfo(
        [GroupMemberInfo("\U0001f600", {"t": 1}), GroupMemberInfo("ﬁ", {"t": 1})], {"t": [0]}
    )
    assert "\U0001f600" > "ﬁ"  # by characters, the order is reversed
    assert owned(by_range(group)) == {"\U0001f600-0": ["t0"]}


def test_partitions_sort_as_numbers() -> None:
    group = GroupInfo(
        [GroupMemberInfo("a", {"t": 1}), GroupMemberInfo("b", {"t": 1})], {"t": [10, 2, 1, 0]}
    )
    assert owned(by_range(group)) == {"a-0": ["t0", "t1"], "b-0": ["t2", "t10"]}


# -- round-robin


@given(group=even_groups)
@some
def test_round_robin_loads_differ_by_one_with_equal_subscriptions(group: GroupInfo) -> None:
    (threads, *_) = group.subscriptions().values()
    for strategy in (round_robin, round_robin_0_10):
        loads = Counter(strategy(group).values())
        full = [loads[thread] for thread in threads]
        assert max(full) - min(full) <= 1


@pytest.mark.parametrize(
    ("strategy", "texts"),
    [(round_robin, ["t-0", "t-1", "u-0", "u-1"]), (round_robin_0_10, ["[t,0]", "[t,1]"])],
)
def test_round_robin_assigns_partitions_in_the_order_of_their_hash(
    strategy: Callable[[GroupInfo], dict[TopicPartition, str]], texts: list[str]
) -> None:
    topics = ("t", "u") if len(texts) > 2 else ("t",)
    group = GroupInfo(
        [GroupMemberInfo(name, dict.fromkeys(topics, 1)) for name in "abcd"],
        {topic: range(2) for topic in topics},
    )
    order = sorted(texts, key=string_hash)
    assigned = dict(zip(order, ("a-0", "b-0", "c-0", "d-0"), strict=False))
    assert list(strategy(group).values()) == [assigned[text] for text in texts]


def test_round_robin_of_old_and_new_releases_differs() -> None:
    topics = {f"invoices-of-{n}": range(4) for n in ("january", "may", "october")}
    group = GroupInfo([GroupMemberInfo(name, dict.fromkeys(topics, 1)) for name in "abc"], topics)
    assert round_robin(group) != round_robin_0_10(group)
    assert round_robin_0_8(group) == round_robin_0_10(group)


def test_a_skipped_thread_waits_for_the_next_turn() -> None:
    members = [
        GroupMemberInfo("a", {"u": 1}),
        GroupMemberInfo("b", {"t": 1, "u": 1}),
        GroupMemberInfo("c", {"t": 1, "u": 1}),
    ]
    group = GroupInfo(members, {"t": [0], "u": [0, 1, 2]})
    partitions = group.subscribed_partitions()
    order = sorted(partitions, key=lambda p: string_hash(f"{p.topic}-{p.partition}"))
    assert [p.topic for p in order] == ["t", "u", "u", "u"]
    assert [round_robin(group)[p] for p in order] == ["b-0", "c-0", "a-0", "b-0"]


@given(group=even_groups)
@some
def test_the_strict_round_robin_accepts_equal_subscriptions(group: GroupInfo) -> None:
    assert round_robin_0_8(group) == round_robin_0_10(group)


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        ({"t": 1}, "b-0 reads 't' but not 'u'"),
        ({"t": 1, "u": 2}, "b-1 reads 'u' but not 't'"),
        ({"t": 1, "u": 1, "x": 1}, "a-0 reads 't' but not 'x'"),
    ],
)
def test_the_strict_round_robin_names_the_thread_that_differs(
    streams: dict[str, int], said: str
) -> None:
    group = GroupInfo(
        [GroupMemberInfo("a", {"t": 1, "u": 1}), GroupMemberInfo("b", streams)],
        {"t": [0], "u": [0]},
    )
    with pytest.raises(errors.UnevenSubscriptions) as raised:
        round_robin_0_8(group)
    assert str(raised.value).startswith(said)
    assert "`partition_assignment_strategy`" in str(raised.value)
    assert raised.value.retriable


def test_the_strict_round_robin_allows_members_of_different_sizes() -> None:
    group = GroupInfo(
        [GroupMemberInfo("a", {"t": 1, "u": 1}), GroupMemberInfo("b", {"t": 2, "u": 2})],
        {"t": range(3)},
    )
    assert len(round_robin_0_8(group)) == 3


# -- Jafka


def test_jafka_sorts_partitions_as_texts_of_broker_and_number() -> None:
    members = [GroupMemberInfo("a", {"t": 2}), GroupMemberInfo("b", {"t": 1})]
    assignment = by_broker_range(members, {"t": {2: 1, 10: 1, 1: 11}, "other": {1: 5}})
    names = [partition.name for partition in assignment]
    assert names == [
        *("1-0", "1-1", "1-10", "1-2", "1-3"),
        *("1-4", "1-5", "1-6", "1-7", "1-8"),
        *("1-9", "10-0", "2-0"),
    ]
    assert list(assignment.values()) == ["a-0"] * 5 + ["a-1"] * 4 + ["b-0"] * 4
    assert assignment[BrokerPartition("t", 10, 0)] == "b-0"


# -- parts of an assignment


@given(group=groups)
@some
def test_the_partitions_of_all_members_make_up_the_assignment(group: GroupInfo) -> None:
    whole = by_range(group)
    parts = [partitions_of_consumer(member.consumer_id, whole) for member in group.members]
    assert sum(map(len, parts)) == len(whole)
    assert {p: thread for part in parts for p, thread in part.items()} == whole


def test_a_consumer_id_may_look_like_a_thread_id() -> None:
    group = GroupInfo(
        [GroupMemberInfo("c", {"t": 2}), GroupMemberInfo("c-1", {"t": 1})], {"t": range(3)}
    )
    assert consumer_of("c-1-0") == "c-1"
    assert owned(partitions_of_consumer("c", by_range(group))) == {"c-0": ["t0"], "c-1": ["t1"]}


def test_a_member_sees_the_owners_of_its_own_topics() -> None:
    a, b = GroupMemberInfo("a", {"t": 1}), GroupMemberInfo("b", {"t": 1, "u": 1})
    whole = by_range(GroupInfo([a, b], {"t": range(2), "u": range(2)}))
    assert owned(restricted_to(a, whole)) == {"a-0": ["t0"], "b-0": ["t1"]}
    assert restricted_to(b, whole) == whole


# -- Java


def test_string_hash_equals_java() -> None:
    known = {"": 0, "a": 97, "Aa": 2112, "BB": 2112, "polygenelubricants": -(2**31)}
    assert {text: string_hash(text) for text in known} == known
    assert string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00  # two units
    assert utf16("\ud83d") == b"\xd8\x3d"  # half a pair, as JSON may spell it


def test_fetcher_id_of_the_minimum_hash_is_0() -> None:
    partition = -(2**31) - 31 * string_hash("orders") + 2**32 * 40
    assert fetcher_id("orders", partition, 7) == 0
    assert [fetcher_id("a", p, 3) for p in range(4)] == [(31 * 97 + p) % 3 for p in range(4)]
