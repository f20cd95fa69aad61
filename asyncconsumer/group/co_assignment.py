"""Partitions that are assigned and revoked together with source partitions, not by the group."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace

from asyncconsumer.group.membership import Assignment, Membership
from asyncconsumer.types import TopicPartition


class CoAssignedMembership:
    """A membership that wraps another one, and adds co-assigned partitions to its assignments.

    `co_assigned` maps a source topic to other topics. A member that owns a partition of the source
    topic also gets the partitions with the same number of these topics. An added partition is read
    from its beginning if it has no committed offset.
    """

    def __init__(self, membership: Membership, co_assigned: Mapping[str, Sequence[str]]) -> None:
        self._membership = membership
        self._co_assigned = co_assigned

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assignments of the wrapped membership, with co-assigned partitions added."""
        async for assignment in self._membership.assignments():
            sources = assignment.partitions
            streams = {added: sources[tp] for tp, added in self._pairs(sources)}
            yield replace(
                assignment,
                partitions={**sources, **streams},
                lost=assignment.lost | {tp for _, tp in self._pairs(assignment.lost)},
                fresh=assignment.fresh | streams.keys(),
            )

    def rebalance_pending(self) -> bool:
        """Return whether the wrapped membership has a rebalance pending."""
        return self._membership.rebalance_pending()

    def _pairs(
        self, partitions: Iterable[TopicPartition]
    ) -> Iterable[tuple[TopicPartition, TopicPartition]]:
        """Yield each source partition together with each of its co-assigned partitions."""
        for tp in partitions:
            for topic in self._co_assigned.get(tp.topic, ()):
                yield tp, TopicPartition(topic, tp.partition)

    @property
    def deadline(self) -> float:
        """The loop time until which the wrapped membership certainly owns its partitions."""
        return self._membership.deadline

    @property
    def last_heartbeat(self) -> float:
        """The loop time of the last confirmed heartbeat of the wrapped membership."""
        return self._membership.last_heartbeat

    @property
    def lost(self) -> bool:
        """Whether the wrapped membership is known to own nothing."""
        return self._membership.lost
