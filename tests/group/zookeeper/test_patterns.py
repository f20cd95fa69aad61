"""Registrations of other clients: patterns and counts of limited cost."""

import asyncio
import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping
from random import Random

import pytest

from asyncconsumer.errors import BadZnode, ConfigError
from asyncconsumer.group.zookeeper import registration
from asyncconsumer.group.zookeeper.assignors import (
    GroupInfo,
    GroupMemberInfo,
    by_range,
    round_robin,
)
from asyncconsumer.group.zookeeper.filters import PatternKind, StreamSubscription, Whitelist
from asyncconsumer.group.zookeeper.regex_matcher import Matcher, Steps, TooManySteps
from asyncconsumer.group.zookeeper.regex_parser import PatternError
from asyncconsumer.group.zookeeper.sticky import sticky
from asyncconsumer.group.zookeeper.subscribers import Subscribers
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_connector import T0, T1, fakes, joined

pytestmark = pytest.mark.fast

HOSTILE = [
    "(a|a)+",
    "(a+)+b",
    "(a*)*b",
    "(a.*){12}",
    "(a|aa)+$",
    "a*a*a*a*a*a*a*a*a*a*b",
    "(?=(a+)+b)a.*",
    "((a{0,15}){0,15}){0,15}b",
    "(.*)(.*)(.*)(.*)(.*)(.*)(.*)[^at]",
]


def steps_for(pattern: str, name: str) -> int:
    steps = Steps(10**9)
    Matcher(pattern).matches(name, steps)
    return 10**9 - steps.remaining


# --- one pattern ---------------------------------------------------------------------------------


def generated(chance: Random, depth: int) -> str:
    kind = chance.random()
    if depth == 0 or kind < 0.3:
        atoms = ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", "-", "^", "$", r"\b", "[a-c_]"]
        return chance.choice(atoms)
    part, other = generated(chance, depth - 1), generated(chance, depth - 1)
    if kind < 0.5:
        return part + other
    if kind < 0.65:
        return f"(?:{part}|{other})"
    if kind < 0.85:
        return f"(?:{part}){chance.choice(['*', '+', '?', '{2}', '{0,2}', '*?'])}"
    return f"({chance.choice(['?=', '?!', '?:'])}{part})"


def test_patterns_match_like_a_backtracking_engine() -> None:
    chance = Random(7)
    names = ["".join(word) for n in (1, 2, 3, 4) for word in itertools.product("ab-", repeat=n)]
    compared = 0
    for _ in range(1000):
        pattern = generated(chance, 4)
        expected, matcher = re.compile(pattern), Matcher(pattern)
        for name in chance.sample(names, 10):
            reported = pattern, name, matcher.matches(name, Steps(10**7))
            assert reported == (pattern, name, expected.fullmatch(name) is not None)
            compared += 1
    assert compared == 10_000


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders2", "order"]),
        (r"^orders\..*$", ["orders.eu"], ["orders-eu", "my.orders.eu"]),
        ("(?i)Orders-[A-Z]+", ["ORDERS-eu"], ["orders-1"]),
        ("a(?i)b|c", ["ab", "aB", "C"], ["Ab"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("^(?!__).*", ["orders"], ["__consumer_offsets"]),
        (".*(?<!-dlq)", ["orders"], ["orders-dlq"]),
        (".*(?<=-(eu|us))", ["orders-eu"], ["orders-cn"]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        (r"\p{Alpha}+\p{Digit}", ["orders1"], ["1orders"]),
        ("[a-z&&[^bc]]+", ["ad"], ["ab"]),
        ("[a-c[x-z]]+", ["ax"], ["d"]),
        (r"[\w-]+", ["a-b_1"], ["a.b"]),
        ("[]a-]+", ["a-"], ["b"]),
        ("(?<name>a|b){2,3}", ["ab", "aba"], ["a", "abab"]),
        (r"\x61\u0062", ["ab"], ["ba"]),
        (r"\bfoo\b.*", ["foo-bar"], ["foobar"]),
        ("", [], ["a"]),
    ],
)
def test_patterns_are_parsed_like_in_java(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    matcher = Matcher(pattern)
    results = [name for name in (*matching, *others) if matcher.matches(name, Steps(10**6))]
    assert results == matching


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1",
        r"(?<x>a)\k<x>",
        "a*+",
        "(?>a*)b",
        "*a",
        "a**",
        "(a",
        "a)",
        "[a",
        "a{2",
        "a{3,2}",
        "a{1|3}",
        "a{99999999999}",
        r"\y",
        r"\p{Klingon}",
        "(?x)a",
        "[z-a]",
        "(" * 60 + "a" + ")" * 60,
        "[" * 60 + "a" + "]" * 60,
        "((a{1000}){1000}){1000}",
        "(((){1000}){1000}){1000}",
        "a" * 2**16,
    ],
    ids=lambda pattern: pattern[:20],
)
def test_patterns_that_backtrack_or_are_too_large_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Matcher(pattern)
    data = json.dumps({"pattern": "white_list", "subscription": {pattern: 1}}).encode()
    with pytest.raises(BadZnode):
        registration.read("/consumers/g/ids/g_m", data)
    with pytest.raises(ConfigError, match="regular expression"):
        Whitelist(pattern)


@pytest.mark.parametrize("pattern", HOSTILE)
def test_the_steps_of_patterns_grow_linearly(pattern: str) -> None:
    """A lookahead is evaluated at each position of a name, so its steps grow quadratically."""
    short, long = (steps_for(pattern, "a" * length) for length in (60, 120))
    limit = 4.5 if "?=" in pattern else 2.2
    assert long <= limit * short + 1000


def test_known_names_take_one_step_for_each_character() -> None:
    matcher = Matcher("|".join(f"team.service-{n}" for n in range(500)))
    assert matcher.matches("team.service-1", Steps(50_000))
    steps = Steps(len("team.service-1"))
    assert matcher.matches("team.service-1", steps)
    assert steps.remaining == 0


def test_the_cached_states_are_bounded() -> None:
    matcher, chance = Matcher("(.*a){20}.{30}b"), Random(1)
    for _ in range(300):
        name = "".join(chance.choice("ab") for _ in range(100))
        assert matcher.matches(name, Steps(10**9)) == bool(
            name[-1] == "b" and name[-32] == "a" and name[:-31].count("a") >= 20
        )
    assert sum(len(states) for states in matcher._sets) <= 2**16


# --- one registration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "streams",
    [
        {f"t{n}": 2**16 for n in range(60)},
        {f"t{n}": 20 for n in range(4096)},
        dict.fromkeys((f"t{n}" for n in range(5000)), 0),
        {"t": 2**16 + 1},
    ],
)
def test_the_sum_of_streams_and_the_number_of_topics_are_limited(streams: dict[str, int]) -> None:
    data = json.dumps({"pattern": "static", "subscription": streams}).encode()
    with pytest.raises(BadZnode, match="streams of"):
        registration.read("/consumers/g/ids/g_m", data)


# --- all registrations ---------------------------------------------------------------------------


class FakeTopics:
    """A topic source that records which topics were requested."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self.asked: list[str] = []

    async def names(self) -> list[str]:
        return self._names

    async def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        self.asked = list(topics)
        return {topic: (0, 1) for topic in self.asked if topic in self._names}

    async def run(self) -> None:
        """Do nothing, because topics do not change."""


def white(pattern: str, streams: int = 1) -> StreamSubscription:
    return StreamSubscription({pattern: streams}, PatternKind.WHITE_LIST)


async def read(
    subscriptions: Mapping[str, StreamSubscription], names: Collection[str]
) -> tuple[list[GroupMemberInfo], FakeTopics]:
    topics = FakeTopics(names)
    subscribers = Subscribers(topics, "g_own", exclude_internal=True)
    members, _ = await subscribers.read(subscriptions)
    return members, topics


@simulated([1])
async def test_a_member_with_an_expensive_pattern_is_ignored() -> None:
    names = [f"{'ab' * n}{'b' * 40}" for n in range(50)]
    branches = "|".join(".*a" * 40 + f".{{{n}}}" for n in range(60))
    costly = {f"g_m{n}": white(f"({branches})+{n}") for n in range(20)}
    subscriptions = {"g_own": white(".*b"), "g_other": white("ab.*"), **costly}
    members, _ = await read(subscriptions, names)
    reported = {member.consumer_id: len(member.streams) for member in members}
    assert reported.pop("g_own") == 50
    assert reported.pop("g_other") == 49
    assert len(reported) < 20


@simulated([1])
async def test_the_own_pattern_is_never_ignored() -> None:
    pattern = "|".join(".*a" * 40 + f".{{{n}}}" for n in range(60))
    with pytest.raises(TooManySteps):
        white(pattern).topics(["a" * 200], exclude_internal=True)
    members, _ = await read({"g_own": white(pattern), "g_x": white("a.*")}, ["a" * 200])
    assert {member.consumer_id: list(member.streams) for member in members} == {
        "g_own": ["a" * 200],
        "g_x": ["a" * 200],
    }


@simulated([1])
async def test_other_tasks_run_while_patterns_are_matched() -> None:
    names = [f"{'ab' * (n % 100)}{n}" for n in range(500)]
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count_turns())
        hostile = {f"g_m{n}": white(f"(.*a){{{12 + n}}}") for n in range(20)}
        await read({"g_own": white(".*"), **hostile}, names)
        counting.cancel()
    assert turns > 20  # about one turn for 20,000 steps


@simulated([1])
async def test_the_streams_of_a_group_are_limited_and_small_members_are_kept() -> None:
    names = [f"t{n}" for n in range(100)]
    hostile = {f"g_h{n}": StreamSubscription({"t1": 2**15}) for n in range(10)}
    subscriptions = {"g_own": StreamSubscription({"t1": 2}), "g_x": white("t.*", 3), **hostile}
    members, _ = await read(subscriptions, names)
    reported = {member.consumer_id for member in members}
    assert {"g_own", "g_x"} <= reported
    assert len(reported - {"g_own", "g_x"}) == 1  # the sum is 2**16
    for strategy in (by_range, round_robin, sticky):
        shares = strategy(GroupInfo(members, dict.fromkeys(names, (0, 1))))
        assert len(shares) == 200


@simulated([1])
async def test_many_topics_with_the_same_readers_count_once() -> None:
    names = [f"t{n}" for n in range(2000)]
    subscriptions = {f"g_m{n}": white("t.*", 4) for n in range(99)} | {"g_own": white("t.*", 4)}
    members, _ = await read(subscriptions, names)
    assert len(members) == 100
    lists = GroupInfo(members, {}).subscriptions()
    assert len(lists) == 2000
    assert len({id(threads) for threads in lists.values()}) == 1


@simulated([1])
async def test_only_existing_topics_of_other_members_are_requested() -> None:
    many = StreamSubscription({f"nowhere{n}": 1 for n in range(4000)} | {"there": 1})
    own = StreamSubscription({"ours": 1, "not-yet": 1})
    members, topics = await read({"g_own": own, "g_x": many}, ["ours", "there", "else"])
    assert topics.asked == ["not-yet", "ours", "there"]
    assert {member.consumer_id: sorted(member.streams) for member in members} == {
        "g_own": ["not-yet", "ours"],
        "g_x": ["there"],
    }


@simulated(range(3))
async def test_a_member_continues_despite_hostile_registrations() -> None:
    async with fakes() as world:
        world.cluster.add_topic("a" * 60, 1)
        async with world.connector("m1") as connector:
            await joined(connector)
            for number, pattern in enumerate(HOSTILE):
                data = registration.write(white(pattern), 0)
                world.create(f"/consumers/g/ids/g_x{number}", data)
            many = {f"t{n}": 2**16 for n in range(60)}
            world.create("/consumers/g/ids/g_y", registration.write(StreamSubscription(many), 0))
            await asyncio.sleep(10)
            # hostile members count for their own topics only, and "t" is not among them
            assert (world.owner(T0), world.owner(T1)) == ("g_m1-0", "g_m1-0")
