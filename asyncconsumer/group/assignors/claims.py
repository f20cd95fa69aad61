"""Who had what: what each member says that it owns, where two say so of the same partition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from asyncconsumer.group.assignors.protocol import MemberSubscription
from asyncconsumer.protocol.java_hash import hash_order
from asyncconsumer.types import TopicPartition


class PreviousAssignment(NamedTuple):
    """What a member remembers to have been assigned, and in which generation."""

    partitions: Sequence[TopicPartition]
    generation: int


@dataclass
class OwnershipClaims:
    """The claims of all members, settled."""

    held: dict[str, dict[TopicPartition, None]]
    """What each member has, by all we know; members in the order of Java's maps."""
    contested: set[TopicPartition] = field(default_factory=set)
    """Claimed twice in one generation."""
    previous: dict[TopicPartition, str] = field(default_factory=dict)
    """Who had a partition in the latest generation before the newest."""

    def owners(self) -> dict[TopicPartition, str]:
        """Who has each partition."""
        return {p: member for member, held in self.held.items() for p in held}


def settled(
    partitions: Mapping[str, int],
    subscriptions: Mapping[str, MemberSubscription],
    memories: Mapping[str, PreviousAssignment],
) -> OwnershipClaims:
    """The newer generation is right; of two in the same one nobody is.

    A claim to a partition that does not exist is nothing. (Java keeps those of topics that have
    become smaller, and then assigns other partitions twice.)
    """
    claims = OwnershipClaims({member: {} for member in hash_order(subscriptions)})
    claimed: dict[TopicPartition, str] = {}
    for member, held in claims.held.items():
        ours, generation = memories[member]
        for partition in _among(partitions, ours):
            other = claimed.get(partition)
            # as Java has it: the other's generation is what its subscription says, not its memory
            others = subscriptions[other].generation_id if other is not None else None
            if others is not None and others > generation:
                continue
            if other is not None:
                claims.held[other].pop(partition, None)
            if others == generation:
                claims.contested.add(partition)
            else:
                held[partition] = None
            claimed[partition] = member
    claims.previous = _previous(partitions, {m: memories[m] for m in claims.held})
    return claims


def _previous(
    partitions: Mapping[str, int], memories: Mapping[str, PreviousAssignment]
) -> dict[TopicPartition, str]:
    newest = max((memory.generation for memory in memories.values()), default=0)
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member, (ours, generation) in memories.items():
        if generation == newest:
            continue
        for partition in _among(partitions, ours):
            if partition not in found or generation > found[partition][0]:
                found[partition] = (generation, member)
    return {partition: member for partition, (_, member) in found.items()}


def _among(
    partitions: Mapping[str, int], claimed: Iterable[TopicPartition]
) -> Iterable[TopicPartition]:
    return (p for p in claimed if 0 <= p.partition < partitions.get(p.topic, 0))
