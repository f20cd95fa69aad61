"""The interface of an assignor, and the subscriptions of members that it receives."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from asyncconsumer.protocol.java_hash import hash_order, utf16
from asyncconsumer.protocol.subscription_codec import ConsumerProtocolSubscription
from asyncconsumer.types import TopicPartition

PartitionsByMember = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id. It contains every member."""

Racks = Mapping[TopicPartition, Collection[str]]
"""The racks in which a partition has a replica."""


@dataclass(frozen=True, slots=True)
class MemberSubscription(ConsumerProtocolSubscription):
    """The subscription of a member. `group_instance_id` is set if the member is static."""

    group_instance_id: str | None = None

    @classmethod
    def of(cls, metadata: bytes, group_instance_id: str | None = None) -> Self:
        """Decode the subscription in `metadata`, which the member sent in its JoinGroup request."""
        return replace(cls.decode(metadata), group_instance_id=group_instance_id)


class Assignor(Protocol):
    """The interface of an assignor. A subclass needs only `name` and `assign`.

    Each consumer has its own assignor instance, which may store what is passed to `assigned`. All
    members of a group must offer an assignor of the same name. The group leader calls `assign` for
    all members.

        class FirstTakesAll(Assignor):
            name = "first-takes-all"

            def assign(self, partitions, subscriptions, racks=None):
                first, *others = sorted(subscriptions)
                subscribed = [TopicPartition(topic, n) for topic in subscriptions[first].topics
                          for n in range(partitions.get(topic, 0))]
                return {first: subscribed} | {member: [] for member in others}
    """

    name: str
    """The protocol name in JoinGroup requests."""
    cooperative: bool = False
    """Whether members keep reading their partitions during a rebalance.

    If so, `assign` must leave out a partition that another member still owns. The rebalance that
    follows its revocation assigns it.
    """

    def user_data(
        self, topics: Collection[str], owned: Collection[TopicPartition], generation: int
    ) -> bytes | None:
        """Return additional bytes for this member's subscription, or None.

        The assignor of the group leader receives them. `topics` are the subscribed topics, and
        `owned` the partitions that this member owns while it joins. `generation` is its last
        generation, or -1 if there is none.
        """
        return None

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> PartitionsByMember:
        """Return the partitions of each member. Only the group leader calls this.

        `partitions` has the number of partitions of each existing topic. Topics without subscribers
        are ignored. `subscriptions` has the members by id, in the broker's order. `racks` has the
        racks of each partition's replicas, for rack-aware assignors. The racks of members are in
        their subscriptions.
        """
        ...

    def assigned(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Receive the partitions that the group leader assigned to this member in a generation.

        The consumer calls this on every member after SyncGroup. This implementation does nothing.
        """
        return


def existing(
    partitions: Mapping[str, int], subscriptions: Mapping[str, MemberSubscription]
) -> dict[str, int]:
    """Return the partition counts of the subscribed topics that exist, by topic.

    The topics have the iteration order of Java's `HashMap`.
    """
    members = hash_order(subscriptions)
    subscribed = hash_order(topic for member in members for topic in subscriptions[member].topics)
    existing_topics = hash_order(topic for topic in subscribed if partitions.get(topic))
    return {topic: partitions[topic] for topic in existing_topics}


def in_order(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """Return the ids of all members, static members first.

    Static members are sorted by instance id, the others by member id.
    """

    def sort_key(member: str) -> tuple[bool, bytes]:
        instance = subscriptions[member].group_instance_id
        return instance is None, utf16(member if instance is None else instance)

    return sorted(subscriptions, key=sort_key)


def readers(subscriptions: Mapping[str, MemberSubscription]) -> dict[str, list[str]]:
    """Return the ids of the members that subscribe to each topic.

    The ids have the order of `in_order`.
    """
    members: dict[str, list[str]] = {}
    for member in in_order(subscriptions):
        for topic in dict.fromkeys(subscriptions[member].topics):
            members.setdefault(topic, []).append(member)
    return members
