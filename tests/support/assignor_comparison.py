"""Random rebalances: assignments of these assignors compared with those of the Java client.

The suite runs a few of them. To run more:

    python -m tests.support.assignor_comparison --sequences 1000 --seed x
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
from tests.support.classic_groups import (
    ASSIGNORS,
    RandomGroup,
    Rebalance,
    is_sound,
    random_rebalance,
)
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


def observed(sequences: int, wild_groups: int, *, seed: str = "") -> Iterator[Rebalance]:
    """Yield six rebalances of each sequence of each assignor, with racks if `seed` starts so."""
    racks = seed.startswith("racks")
    for name in ASSIGNORS:
        for number in range(sequences):
            random = Random(f"{seed}{name} {number}")
            even, large = number % 2 == 0, number % 10 == 9
            yield from RandomGroup(random, name, even=even, large=large, racks=racks).rebalances(6)
    for name in ("sticky", "cooperative-sticky"):
        for number in range(wild_groups):
            random = Random(f"{seed}{name} {number}")
            yield random_rebalance(random, name, limit=20 if number % 20 else 80, racks=racks)


def agree(rebalance: Rebalance, answer: Any) -> bool:
    """Return whether both assignments are equal. If not, Java's must be wrong.

    Java fails, does not terminate, or assigns a partition to a former owner that has unsubscribed.
    Java may revoke that partition again, and then balances the group differently.
    """
    if answer == in_bytes(rebalance.assignment):
        return True
    wrong = refused(answer) or not is_sound(rebalance, read(answer))
    assert wrong or any(map(_owned_unsubscribed_partitions, rebalance.members.values())), question(
        rebalance
    )
    assert is_sound(rebalance, rebalance.assignment), question(rebalance)
    return False


def _owned_unsubscribed_partitions(subscription: MemberSubscription) -> bool:
    had = list(subscription.owned_partitions)
    with suppress(MalformedConsumerProtocol):
        had += StickyUserData.decode(subscription.user_data or b"").partitions
    return not {partition.topic for partition in had} <= set(subscription.topics)


def by_racks(rebalance: Rebalance) -> bool:
    """Return whether the assignment would differ without racks."""
    assignor = ASSIGNORS[rebalance.assignor]()
    return assignor.assign(rebalance.topics, rebalance.members) != rebalance.assignment


async def main() -> None:
    """Compare many random rebalances."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=1000, help="of each assignor")
    parser.add_argument("--seed", default="more", help="a seed that starts with `racks` adds racks")
    options = parser.parse_args()
    rebalances = list(observed(options.sequences, options.sequences, seed=options.seed))
    counted = Counter[str]()
    for first in range(0, len(rebalances), AT_ONCE):
        part = rebalances[first : first + AT_ONCE]
        for rebalance, answer in zip(part, await ask_java(list(map(question, part))), strict=True):
            wrong = "Java fails" if refused(answer) else "Java is wrong"
            counted[f"{rebalance.assignor}, {'agreed' if agree(rebalance, answer) else wrong}"] += 1
            counted[f"{rebalance.assignor}, divided by racks"] += by_racks(rebalance)
        print(f"{first + len(part)} of {len(rebalances)}: {dict(counted)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
