"""Random rebalances: assignments of these assignors compared with those of the Java client.

The suite runs a few of them. To run more:

    python -m tests.support.assignor_comparison --stories 1000 --seed x
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from asyncconsumer.errors import MalformedConsumerProtocol
from asyncconsumer.group.assignors import MemberSubscription, PartitionsByMember
from asyncconsumer.protocol.subscription_codec import ConsumerProtocolAssignment, StickyUserData
from asyncconsumer.types import TopicPartition
from tests.support.classic_groups import ASSIGNORS, Rebalance, Story, is_sound, wild
from tests.support.java_assignors import ask_java, refused

AT_ONCE = 3000
"""Questions for one JVM."""


def question(rebalance: Rebalance) -> dict[str, Any]:
    return {
        "ask": "assign",
        "assignor": rebalance.assignor,
        "topics": {
            topic: [rebalance.replicas.get(TopicPartition(topic, n), []) for n in range(count)]
            for topic, count in rebalance.topics.items()
        },
        "members": [
            {
                "id": member,
                "metadata": subscription.encode().hex(),
                "instance": subscription.group_instance_id,
            }
            for member, subscription in rebalance.members.items()
        ],
    }


def in_bytes(assignment: PartitionsByMember) -> dict[str, str]:
    return {m: ConsumerProtocolAssignment(p).encode().hex() for m, p in assignment.items()}


def read(answer: Mapping[str, str]) -> PartitionsByMember:
    decode = ConsumerProtocolAssignment.decode
    return {m: list(decode(bytes.fromhex(a)).assigned_partitions) for m, a in answer.items()}


def observed(stories: int, wild_ones: int, *, seed: str = "") -> Iterator[Rebalance]:
    """Six rebalances of each story of each assignor; in racks if the seed says so."""
    racks = seed.startswith("racks")
    for name in ASSIGNORS:
        for number in range(stories):
            random = Random(f"{seed}{name} {number}")
            even, large = number % 2 == 0, number % 10 == 9
            yield from Story(random, name, even=even, large=large, racks=racks).rebalances(6)
    for name in ("sticky", "cooperative-sticky"):
        for number in range(wild_ones):
            random = Random(f"{seed}{name} {number}")
            yield wild(random, name, limit=20 if number % 20 else 80, racks=racks)


def agree(rebalance: Rebalance, answer: Any) -> bool:
    """Whether both say the same. If not, Java must be wrong.

    It fails, has no end, or gives a partition back to one that does not want it any more; that one
    may lose it again before all is done, and the loads are evened out on another way.
    """
    if answer == in_bytes(rebalance.assignment):
        return True
    wrong = refused(answer) or not is_sound(rebalance, read(answer))
    assert wrong or any(map(_had_what_it_does_not_want, rebalance.members.values())), question(
        rebalance
    )
    assert is_sound(rebalance, rebalance.assignment), question(rebalance)
    return False


def _had_what_it_does_not_want(subscription: MemberSubscription) -> bool:
    had = list(subscription.owned_partitions)
    with suppress(MalformedConsumerProtocol):
        had += StickyUserData.decode(subscription.user_data or b"").partitions
    return not {partition.topic for partition in had} <= set(subscription.topics)


def by_racks(rebalance: Rebalance) -> bool:
    """Whether it would have been divided differently without racks."""
    assignor = ASSIGNORS[rebalance.assignor]()
    return assignor.assign(rebalance.topics, rebalance.members) != rebalance.assignment


async def main() -> None:
    """Compare many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=1000, help="of each assignor")
    parser.add_argument("--seed", default="more", help="racks and anything: groups with racks")
    options = parser.parse_args()
    rebalances = list(observed(options.stories, options.stories, seed=options.seed))
    counted = Counter[str]()
    for first in range(0, len(rebalances), AT_ONCE):
        some = rebalances[first : first + AT_ONCE]
        for rebalance, answer in zip(some, await ask_java(list(map(question, some))), strict=True):
            wrong = "Java fails" if refused(answer) else "Java is wrong"
            counted[f"{rebalance.assignor}, {'agreed' if agree(rebalance, answer) else wrong}"] += 1
            counted[f"{rebalance.assignor}, divided by racks"] += by_racks(rebalance)
        print(f"{first + len(some)} of {len(rebalances)}: {dict(counted)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
