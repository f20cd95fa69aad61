"""What an assignor is, and what it is told of the members of a group."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from asyncconsumer.protocol.java_hash import hash_order, utf16
from asyncconsumer.protocol.subscription_codec import ConsumerProtocolSubscription
from asyncconsumer.types import TopicPartition

Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id. Every member is in it."""

Racks = Mapping[TopicPartition, Collection[str]]
"""The racks in which a partition has a replica."""


@dataclass(frozen=True, slots=True)
class MemberSubscription(ConsumerProtocolSubscription):
    """A member's subscription, and the name it keeps over restarts if it is a static member."""

    group_instance_id: str | None = None

    @classmethod
    def of(cls, metadata: bytes, group_instance_id: str | None = None) -> Self:
        """That of a member as JoinGroup tells of it."""
        return replace(cls.decode(metadata), group_instance_id=group_instance_id)


class Assignor(Protocol):
    """A way to divide partitions. Write your own by subclassing this: `name` and `assign` will do.

    Each consumer has an assignor of its own, which may remember what it was `assigned`. All members
    of a group must offer one of the same name; the one who leads calls `assign` for all of them.

        class FirstTakesAll(Assignor):
            name = "first-takes-all"

            def assign(self, partitions, subscriptions, racks=None):
                first, *others = sorted(subscriptions)
                wanted = [TopicPartition(topic, n) for topic in subscriptions[first].topics
                          for n in range(partitions.get(topic, 0))]
                return {first: wanted} | {member: [] for member in others}
    """

    name: str
    """What the protocol is called on the wire."""
    cooperative: bool = False
    """Whether members may go on reading what they own while they rebalance.

    Then `assign` must not give a partition to a member while another still owns it: it is left out,
    and assigned in the rebalance that follows once its owner has let go of it.
    """

    def user_data(
        self, topics: Collection[str], owned: Collection[TopicPartition], generation: int
    ) -> bytes | None:
        """What else the leader's assignor should know of this member; goes into its subscription.

        `owned` is what it still owns as it joins, of that generation (-1: of none).
        """
        return None

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> Assignment:
        """Divide the topics, given by their number of partitions, among members, given by id.

        Members come in the order in which the broker names them. A topic that does not exist is
        not in `partitions`; topics there that nobody subscribes to do not matter. `racks` are for
        an assignor that prefers replicas nearby; where members are their subscriptions tell.
        """
        ...

    def assigned(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """The member has been given these partitions, in that generation."""
        return


def existing(
    partitions: Mapping[str, int], subscriptions: Mapping[str, MemberSubscription]
) -> dict[str, int]:
    """Of the topics that somebody subscribes to those that exist, in the order of Java's maps."""
    members = hash_order(subscriptions)
    wanted = hash_order(topic for member in members for topic in subscriptions[member].topics)
    found = hash_order(topic for topic in wanted if partitions.get(topic))
    return {topic: partitions[topic] for topic in found}


def in_order(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """The members: static ones first, by the names that they keep, then the others by their ids."""

    def place(member: str) -> tuple[bool, bytes]:
        instance = subscriptions[member].group_instance_id
        return instance is None, utf16(member if instance is None else instance)

    return sorted(subscriptions, key=place)


def readers(subscriptions: Mapping[str, MemberSubscription]) -> dict[str, list[str]]:
    """The members that subscribe to each topic, in their order."""
    found: dict[str, list[str]] = {}
    for member in in_order(subscriptions):
        for topic in dict.fromkeys(subscriptions[member].topics):
            found.setdefault(topic, []).append(member)
    return found
