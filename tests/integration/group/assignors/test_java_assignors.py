"""The assignors and their protocol compared with those of the Java client."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from asyncconsumer.errors import MalformedConsumerProtocol
from asyncconsumer.group.assignors import (
    CooperativeStickyAssignor,
    MemberSubscription,
    StickyAssignor,
)
from asyncconsumer.protocol.subscription_codec import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from asyncconsumer.types import TopicPartition
from tests.support.assignor_comparison import agree, by_racks, observed, question
from tests.support.classic_groups import ASSIGNORS, TOPICS, Rebalance, random_rebalance
from tests.support.java_assignors import REFUSED, ask_java, refused

MANY_TOPICS = (*TOPICS, *(f"topic-{n}" for n in range(30)))
SEQUENCES = 60
"""Sequences of six rebalances for each assignor."""
WILD = 200
"""Random groups for each sticky assignor."""
RACKED = 40
"""Sequences with racks for each assignor, and as many random groups for each sticky one."""


def wrong_in_java() -> Iterator[Rebalance]:
    """Yield groups for which the Java assignors compute unbalanced or unstable assignments."""
    p = TopicPartition
    smaller = {
        "m1": MemberSubscription(("t", "u"), None, [p("t", 0), p("t", 9)], 1),
        "m2": MemberSubscription(("t", "u"), None, [p("u", 0), p("u", 1)], 1),
    }
    unread = {
        "m1": MemberSubscription(("t",), None, [p("t", n) for n in range(6)], 2),
        "m2": MemberSubscription(("t", "u"), None, [p("u", 0)], 2),
        "m3": MemberSubscription(("u", "v"), None, [p("t", 0)], 1),
    }
    for topics, members in (({"t": 2, "u": 2}, smaller), ({"t": 6, "u": 1, "v": 1}, unread)):
        assignment = CooperativeStickyAssignor().assign(topics, members)
        yield Rebalance("cooperative-sticky", topics, members, assignment)
    yield random_rebalance(Random("xsticky2028"), "sticky")  # Java's assignor does not terminate


async def test_assignments_equal_those_of_the_java_client() -> None:
    rebalances, divergent = list(observed(SEQUENCES, WILD)), list(wrong_in_java())
    answers = await ask_java([question(rebalance) for rebalance in (*rebalances, *divergent)])

    agreed = Counter[str]()
    for rebalance, answer in zip(rebalances, answers, strict=False):
        agreed[rebalance.assignor] += agree(rebalance, answer)
    assert agreed.keys() == ASSIGNORS.keys()
    assert agreed["range"] == agreed["roundrobin"] == SEQUENCES * 6
    assert sum(agreed.values()) >= len(rebalances) * 0.99
    for rebalance, answer in zip(divergent, answers[len(rebalances) :], strict=True):
        assert not agree(rebalance, answer)


async def test_rack_aware_assignments_equal_those_of_the_java_client() -> None:
    rebalances = list(observed(RACKED, RACKED, seed="racks "))
    answers = await ask_java([question(rebalance) for rebalance in rebalances])

    agreed, near = Counter[str](), Counter[str]()
    for rebalance, answer in zip(rebalances, answers, strict=True):
        agreed[rebalance.assignor] += agree(rebalance, answer)
        near[rebalance.assignor] += by_racks(rebalance)
    assert agreed["range"] == agreed["roundrobin"] == RACKED * 6
    assert sum(agreed.values()) >= len(rebalances) * 0.99
    assert near["roundrobin"] == 0
    assert all(near[name] > RACKED for name in agreed if name != "roundrobin"), near


def random_partitions(random: Random) -> list[TopicPartition]:
    if random.random() < 0.2:  # numbers of topics at which a HashMap grows
        topics = random.sample(MANY_TOPICS, random.choice((12, 13, 14, 24, 25)))
        return [TopicPartition(topic, 0) for topic in topics]
    return [
        TopicPartition(random.choice(MANY_TOPICS), random.randrange(20))
        for _ in range(random.choice((0, 1, 5, 30, 50)))
    ]


def writing(random: Random) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the input for Java with the encoding of asyncconsumer."""
    version = random.randrange(4)
    topics = random.sample((*TOPICS, "ﬁ", "\U0001f600", "a"), random.randrange(6))
    user_data = random.choice((None, b"", b"\x00\xff"))
    partitions = random_partitions(random)
    generation = random.choice((-1, 0, 7, 2**31 - 1))
    rack = random.choice((None, "", "north"))
    subscription = ConsumerProtocolSubscription(topics, user_data, partitions, generation, rack)
    asked = {
        "version": version,
        "topics": topics,
        "user_data": user_data if user_data is None else user_data.hex(),
        "owned": partitions,
        "partitions": partitions,
        "generation": generation,
        "rack": rack,
    }
    yield {"ask": "write subscription", **asked}, subscription.encode(version).hex()
    assignment = ConsumerProtocolAssignment(partitions, user_data)
    yield {"ask": "write assignment", **asked}, assignment.encode(version).hex()
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    sticky.assigned(partitions, generation)
    for assignor in (sticky, cooperative):
        data = assignor.user_data(topics, partitions, generation)
        assert data is not None
        yield {"ask": "user data", "assignor": assignor.name, **asked}, data.hex()


def decode_as_java(data: bytes) -> dict[str, Any]:
    try:
        subscription = ConsumerProtocolSubscription.decode(data)
    except MalformedConsumerProtocol:
        return {REFUSED: ""}
    return {
        "topics": list(subscription.topics),
        "user_data": None if subscription.user_data is None else subscription.user_data.hex(),
        "owned": [list(partition) for partition in subscription.owned_partitions],
        "generation": subscription.generation_id,
        "rack": subscription.rack_id,
    }


def malformed(random: Random, data: bytes) -> bytes:
    """Return the bytes truncated, extended, or with one byte changed."""
    match random.randrange(4):
        case 0:
            return data[: random.randrange(len(data) + 1)]
        case 1:
            return data + random.randbytes(3)
        case 2:
            return bytes((0, random.choice((0, 1, 2, 3, 4, 255)))) + data[2:]
        case _:
            where = random.randrange(len(data))
            return data[:where] + bytes((random.choice((0, 1, 127)),)) + data[where + 1 :]


async def test_encoded_bytes_equal_those_of_the_java_client() -> None:
    random = Random("bytes")
    written = [pair for _ in range(60) for pair in writing(random)]
    reported = [
        bytes.fromhex(data) for asked, data in written if asked["ask"] == "write subscription"
    ]
    received = [*reported, *(malformed(random, data) for data in reported for _ in range(8))]
    never_assigned = {"ask": "user data", "assignor": "sticky", "partitions": None}
    answers = iter(
        await ask_java(
            [
                *(asked for asked, _ in written),
                never_assigned,
                *({"ask": "read subscription", "bytes": data.hex()} for data in received),
            ]
        )
    )
    for asked, data in written:
        assert next(answers) == data, asked
    assert next(answers) is None
    assert StickyAssignor().user_data([], [], -1) is None
    refusals = 0
    for metadata, answer in zip(received, answers, strict=True):
        # Java decodes invalid UTF-8 with replacement characters, and this client refuses it
        refusal = refused(answer) or "\ufffd" in str(answer)
        refusals += refusal
        theirs = {REFUSED: ""} if refusal else answer
        assert decode_as_java(metadata) == theirs, (metadata.hex(), answer)
    assert 20 < refusals < len(received) / 2
