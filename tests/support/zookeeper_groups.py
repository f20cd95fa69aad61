"""Random consumer groups. A seed determines a group."""

from collections.abc import Mapping
from random import Random

from hypothesis import strategies as st

from asyncconsumer.group.zookeeper.assignors import GroupInfo, GroupMemberInfo
from asyncconsumer.types import TopicPartition

# dashes, two digits, dots, and characters that sort differently in other encodings
CONSUMERS = (
    "c",
    "c-1",
    "c-10",
    "c-2",
    "C",
    "host.example-1794788271647-c7641dfc",
    "ä",
    "ﬁ",
    "日本",
)
TOPICS = (
    "a",
    "b",
    "orders",
    "orders-eu",
    "orders.eu",
    "orders_10",
    "t1",
    "t10",
    "t2",
    "Z",
    "empty",
)
MISSING = "no-such-topic"


def random_topics(random: Random, limit: int = 17) -> dict[str, range]:
    """Return topics and their partitions. One topic has none."""
    return {t: range(0 if t == "empty" else random.randint(1, limit)) for t in TOPICS}


def random_group(
    random: Random,
    topics: Mapping[str, range],
    *,
    prefix: str = "",
    members: int = 6,
    streams: int = 4,
    even: bool = False,
) -> GroupInfo:
    """Return a random group with limits on members and on streams per topic (rarely, twelve).

    With `even`, all subscribe to the same topics and have as many streams of each.
    """
    subscribed = [*topics, MISSING] if len(topics) > 4 else list(topics)
    shared = random.sample(subscribed, random.randint(1, min(5, len(subscribed))))
    results = []
    for consumer in random.sample(CONSUMERS, random.randint(1, members)):
        count = random.randint(1, streams) if random.random() < 0.9 else 3 * streams
        chosen = shared if even else random.sample(shared, random.randint(1, len(shared)))
        own = {t: count if even else random.randint(1, count) for t in chosen}
        results.append(GroupMemberInfo(f"{prefix}{consumer}", own))
    return GroupInfo(results, {topic: topics[topic] for topic in shared if topic in topics})


def with_owners(random: Random, group: GroupInfo) -> GroupInfo:
    """Return the group with owners: some of its threads, none, or others."""
    threads = [*sorted({t for ts in group.subscriptions().values() for t in ts}), "gone-0"]
    partitions = [*group.subscribed_partitions(), TopicPartition("gone", 0)]
    owners = {p: random.choice(threads) for p in partitions if random.random() < 0.8}
    return GroupInfo(group.members, group.partitions, owners)


def _any_group(random: Random, *, even: bool = False) -> GroupInfo:
    return with_owners(random, random_group(random, random_topics(random), even=even))


groups = st.randoms(use_true_random=False).map(_any_group)
even_groups = st.randoms(use_true_random=False).map(lambda random: _any_group(random, even=True))
