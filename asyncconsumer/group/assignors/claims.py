"""The partitions that members claim to own, with conflicts between members resolved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from asyncconsumer.group.assignors.protocol import MemberSubscription
from asyncconsumer.protocol.java_hash import hash_order
from asyncconsumer.types import TopicPartition


class PreviousAssignment(NamedTuple):
    """The partitions that a member claims to own, and the generation that assigned them."""

    partitions: Sequence[TopicPartition]
    generation: int


@dataclass
class OwnershipClaims:
    """The owner of each claimed partition, after conflicts between claims are resolved."""

    held: dict[str, dict[TopicPartition, None]]
    """The partitions of each member; members in the order of Java's `HashMap`."""
    contested: set[TopicPartition] = field(default_factory=set)
    """Partitions that two members claim in the same generation."""
    previous: dict[TopicPartition, str] = field(default_factory=dict)
    """The last owner of each partition before the newest generation."""

    def owners(self) -> dict[TopicPartition, str]:
        """Return the owner of each partition."""
        return {p: member for member, held in self.held.items() for p in held}


def resolve(
    partitions: Mapping[str, int],
    subscriptions: Mapping[str, MemberSubscription],
    previous: Mapping[str, PreviousAssignment],
) -> OwnershipClaims:
    """Return the owners of partitions according to the members' claims in `previous`.

    If two members claim a partition, the member with the newer generation owns it. If their
    generations are equal, neither owns it. Claims to partitions that do not exist are ignored. Java
    keeps such claims if a topic was re-created with fewer partitions, and then assigns other
    partitions twice.
    """
    claims = OwnershipClaims({member: {} for member in hash_order(subscriptions)})
    claimed: dict[TopicPartition, str] = {}
    for member, held in claims.held.items():
        claimed_partitions, generation = previous[member]
        for partition in _existing(partitions, claimed_partitions):
            other = claimed.get(partition)
            # as in Java, the generation of `other` is in its subscription, not in its user data
            other_generation = subscriptions[other].generation_id if other is not None else None
            if other_generation is not None and other_generation > generation:
                continue
            if other is not None:
                claims.held[other].pop(partition, None)
            if other_generation == generation:
                claims.contested.add(partition)
            else:
                held[partition] = None
            claimed[partition] = member
    claims.previous = _previous(partitions, {m: previous[m] for m in claims.held})
    return claims


def _previous(
    partitions: Mapping[str, int], previous: Mapping[str, PreviousAssignment]
) -> dict[TopicPartition, str]:
    newest = max((claim.generation for claim in previous.values()), default=0)
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for member, (claimed_partitions, generation) in previous.items():
        if generation == newest:
            continue
        for partition in _existing(partitions, claimed_partitions):
            if partition not in owners or generation > owners[partition][0]:
                owners[partition] = (generation, member)
    return {partition: member for partition, (_, member) in owners.items()}


def _existing(
    partitions: Mapping[str, int], claimed: Iterable[TopicPartition]
) -> Iterable[TopicPartition]:
    return (p for p in claimed if 0 <= p.partition < partitions.get(p.topic, 0))
