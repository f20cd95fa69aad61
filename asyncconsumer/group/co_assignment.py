"""Co-assigned partitions: assigned and revoked with source partitions, not by the group."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace

from asyncconsumer.group.membership import Assignment, Membership
from asyncconsumer.types import TopicPartition


class CoAssignedMembership:
    """A membership that adds co-assigned partitions to each assignment of another membership.

    `companions` maps a source topic to the topic whose partitions of the same numbers are
    co-assigned. A co-assigned partition is read from its beginning if nothing is committed.
    """

    def __init__(self, membership: Membership, companions: Mapping[str, str]) -> None:
        self._membership = membership
        self._companions = companions

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assignments of the membership with the co-assigned partitions added."""
        async for one in self._membership.assignments():
            added = dict(self._of(one.partitions))
            numbers = {added[at]: number for at, number in one.partitions.items() if at in added}
            yield replace(
                one,
                partitions={**one.partitions, **numbers},
                lost=one.lost | {companion for _, companion in self._of(one.lost)},
                fresh=one.fresh | numbers.keys(),
            )

    def rebalance_pending(self) -> bool:
        """Return whether the membership has a rebalance pending."""
        return self._membership.rebalance_pending()

    def _of(
        self, partitions: Iterable[TopicPartition]
    ) -> Iterable[tuple[TopicPartition, TopicPartition]]:
        for at in partitions:
            if (topic := self._companions.get(at.topic)) is not None:
                yield at, TopicPartition(topic, at.partition)

    @property
    def deadline(self) -> float:
        """The deadline of the membership."""
        return self._membership.deadline

    @property
    def last_heartbeat(self) -> float:
        """The loop time of the membership's last confirmed heartbeat."""
        return self._membership.last_heartbeat

    @property
    def lost(self) -> bool:
        """Whether the membership owns nothing."""
        return self._membership.lost
