"""The assignors compared with those of Kafka releases."""

import asyncio
import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from asyncconsumer.errors import UnevenSubscriptions
from asyncconsumer.group.zookeeper.assignors import (
    STRATEGIES,
    GroupInfo,
    OwnerByPartition,
    Strategy,
    by_range,
    restricted_to,
)
from asyncconsumer.protocol.java_hash import fetcher_id, string_hash, utf16
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.compiler import compiled
from asyncconsumer.testing.servers.java import LOGGING, find_java, java_command
from asyncconsumer.types import TopicPartition
from tests.support.zookeeper_groups import random_group, random_topics

REFUSED = "refused"
TEXTS = (
    *("a", "Aa", "BB", "orders-0", "[orders,0]", "polygenelubricants", "日本", "ß", "z" * 1000),
    *("\U0001f600", "x\U0001f600-1", "\uffef", "\ue000", "\U0010ffff", "\ud83d"),
)


async def ask(
    program: str, kafka: str, questions: Iterable[str], *arguments: str, scala: str = "2.12"
) -> list[str]:
    """Return the lines that the classes of a release print."""
    java, source = find_java(), Path(__file__).with_name(f"{program}.java")
    coordinates = (LOGGING, f"org.apache.kafka:kafka_{scala}:{kafka}")
    jars = await maven.class_path(f"Kafka {kafka}", coordinates)
    classes = await compiled(source, java, jars)
    command = java_command(java, [classes, *jars], program, *arguments, heap="128m")
    text = "".join(f"{question}\n" for question in questions)
    ran = await asyncio.to_thread(
        subprocess.run, command, input=text.encode(), capture_output=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    return ran.stdout.decode().splitlines()


def nodes(topics: dict[str, range], groups: dict[str, GroupInfo]) -> Iterator[str]:
    """Yield the nodes of topics and groups in ZooKeeper."""
    for topic, numbers in topics.items():
        state = {"version": 1, "partitions": {str(n): [0] for n in numbers}}
        yield f"node\t/brokers/topics/{topic}\t{json.dumps(state)}"
    for name, group in groups.items():
        for member in group.members:
            registration = {
                "version": 1,
                "subscription": member.streams,
                "pattern": "static",
                "timestamp": "1794788025158",
            }
            path = f"/consumers/{name}/ids/{member.consumer_id}"
            yield f"node\t{path}\t{json.dumps(registration)}"


def assignment_of(strategy: Strategy, group: GroupInfo) -> OwnerByPartition | str:
    try:
        return strategy(group)
    except UnevenSubscriptions:
        return REFUSED


def theirs(lines: Iterator[str]) -> OwnerByPartition | str:
    assignment: OwnerByPartition = {}
    while (line := next(lines)) != ".":
        if line == REFUSED:
            return REFUSED
        topic, partition, thread = line.split("\t")
        assignment[TopicPartition(topic, int(partition))] = thread
    return assignment


@pytest.mark.parametrize(
    ("kafka", "scala", "strategy", "count"),
    [
        ("1.1.1", "2.12", "roundrobin", 70),
        ("0.11.0.3", "2.12", "roundrobin-0.10", 20),
        ("0.9.0.1", "2.11", "roundrobin-0.8", 20),
    ],
)
async def test_assignments_equal_those_of_kafkas_own_classes(
    zookeeper: ZooKeeperHandle, kafka: str, scala: str, strategy: str, count: int
) -> None:
    random = Random(kafka)
    topics = random_topics(random)
    groups = {
        f"g{n}": random_group(random, topics, prefix=f"g{n}_", even=n % 4 == 0)
        for n in range(count)
    }
    expected: dict[str, OwnerByPartition | str] = {}
    for name, group in groups.items():
        for member in group.members:
            question = f"assign\trange\t{name}\t{member.consumer_id}"
            expected[question] = restricted_to(member, by_range(group))
        # all members compute the same assignment, so one is enough
        question = f"assign\troundrobin\t{name}\t{member.consumer_id}"
        expected[question] = assignment_of(STRATEGIES[strategy], group)

    questions = [*nodes(topics, groups), *expected]
    where = (zookeeper.connect, zookeeper.path())
    lines = iter(await ask("RealAssignors", kafka, questions, *where, scala=scala))

    for question, assignment in expected.items():
        assert theirs(lines) == assignment, question
    refused = [question for question in expected if expected[question] == REFUSED]
    assert bool(refused) == (strategy == "roundrobin-0.8")
    assert len(refused) < len(groups)


async def test_hashes_string_orders_and_fetcher_ids_equal_those_of_java() -> None:
    pairs = [(text, other) for text in TEXTS for other in TEXTS]
    lowest = -(2**31) - 31 * string_hash("orders")  # their sum has no absolute value in Java
    lowest = (lowest + 2**31) % 2**32 - 2**31
    partitions = [(topic, p) for topic in ("orders", "t-1") for p in (0, 1, 7, 2**31 - 1, lowest)]
    fetchers = [(count, *partition) for count in (1, 3, 5) for partition in partitions]

    answers = await ask(
        "RealFetchers",
        "1.1.1",
        [
            *(f"hash\t{utf16(text).hex()}" for text in TEXTS),
            *(f"compare\t{utf16(name).hex()}\t{utf16(other).hex()}" for name, other in pairs),
            *("\t".join(map(str, ("fetcher", *asked))) for asked in fetchers),
        ],
    )

    assert list(map(int, answers)) == [
        *(string_hash(text) for text in TEXTS),
        *((utf16(a) > utf16(b)) - (utf16(a) < utf16(b)) for a, b in pairs),
        *(fetcher_id(topic, partition, count) for count, topic, partition in fetchers),
    ]
