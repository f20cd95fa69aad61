"""Our assignors against Kafka's own, run from the jars of the last release that has them."""

import asyncio
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random

from asyncconsumer.group.assign import Assignment, Group, by_range, round_robin, seen_by
from asyncconsumer.model import TopicPartition
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.compiler import compiled
from asyncconsumer.testing.servers.java import LOGGING, find_java, java_command
from asyncconsumer.wire.java import fetcher_id, string_hash, utf16
from tests.group.groups import random_group, random_topics

SOURCE = Path(__file__).with_name("RealAssignors.java")
CLASSIC = "1.1.1"
TEXTS = (
    *("", "a", "Aa", "BB", "orders-0", "[orders,0]", "polygenelubricants", "日本", "ß"),
    *("\U0001f600", "x\U0001f600-1", "\uffef", "\ue000", "\U0010ffff", "\ud83d", "z" * 1000),
)


async def ask(zookeeper: ZooKeeperHandle, questions: Iterable[str]) -> list[str]:
    """The lines that Kafka's classes answer."""
    java = find_java()
    coordinates = (LOGGING, f"org.apache.kafka:kafka_2.12:{CLASSIC}")
    jars = await maven.class_path(f"Kafka {CLASSIC}", coordinates)
    classes = await compiled(SOURCE, java, jars)
    command = java_command(
        java,
        [classes, *jars],
        SOURCE.stem,
        zookeeper.connect,
        zookeeper.path(),
        heap="128m",
    )
    text = "".join(f"{question}\n" for question in questions)
    ran = await asyncio.to_thread(
        subprocess.run, command, input=text.encode(), capture_output=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    return ran.stdout.decode().splitlines()


def registrations(name: str, group: Group) -> Iterable[str]:
    for member in group.members:
        data = {
            "version": 1,
            "subscription": member.streams,
            "pattern": "static",
            "timestamp": "1794788025158",
        }
        yield f"node\t/consumers/{name}/ids/{member.consumer_id}\t{json.dumps(data)}"


async def test_assignments_are_those_of_kafkas_own_classes(zookeeper: ZooKeeperHandle) -> None:
    random = Random("real assignors")
    topics = random_topics(random)
    groups = {f"g{n}": random_group(random, topics, prefix=f"g{n}_") for n in range(80)}
    questions = [
        f'node\t/brokers/topics/{topic}\t{{"version":1,"partitions":'
        f"{json.dumps({str(n): [0] for n in numbers})}}}"
        for topic, numbers in topics.items()
    ]
    expected: dict[str, Assignment] = {}
    for name, group in groups.items():
        questions.extend(registrations(name, group))
        for member in group.members:
            question = f"assign\trange\t{name}\t{member.consumer_id}"
            expected[question] = seen_by(member, by_range(group))
        # each member of a group works out the same round, so one of them is asked
        expected[f"assign\troundrobin\t{name}\t{member.consumer_id}"] = round_robin(group)

    lines = iter(await ask(zookeeper, [*questions, *expected]))

    assert len(expected) > 200
    for question, ours in expected.items():
        theirs: Assignment = {}
        while (line := next(lines)) != ".":
            consumer, topic, partition, thread = line.split("\t")
            theirs[TopicPartition(topic, int(partition))] = thread
            assert thread.startswith(f"{consumer}-")
        assert theirs == ours, question
    assert sum(map(len, expected.values())) > 2000


async def test_hashes_orders_and_fetchers_are_javas(zookeeper: ZooKeeperHandle) -> None:
    pairs = [(one, other) for one in TEXTS for other in TEXTS if one and other]
    lowest = -(2**31) - 31 * string_hash("orders")  # whose hash has no absolute value in Java
    lowest = (lowest + 2**31) % 2**32 - 2**31
    partitions = [(topic, p) for topic in ("orders", "t-1") for p in (0, 1, 7, 2**31 - 1, lowest)]
    fetchers = [(count, *partition) for count in (1, 3, 5) for partition in partitions]

    answers = await ask(
        zookeeper,
        [
            *(f"hash\t{utf16(text).hex()}" for text in TEXTS if text),
            *(f"compare\t{utf16(one).hex()}\t{utf16(other).hex()}" for one, other in pairs),
            *("\t".join(map(str, ("fetcher", *asked))) for asked in fetchers),
        ],
    )

    assert list(map(int, answers)) == [
        *(string_hash(text) for text in TEXTS if text),
        *((utf16(a) > utf16(b)) - (utf16(a) < utf16(b)) for a, b in pairs),
        *(fetcher_id(topic, partition, count) for count, topic, partition in fetchers),
    ]
