"""Partitions that come and go with others, though the group does not divide them."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace

from asyncconsumer.group.membership import Assignment, Membership
from asyncconsumer.types import TopicPartition


class CoAssignedMembership:
    """A membership, with the partitions of other topics that have the same numbers.

    `companions` names such a topic for a topic. Whoever has a partition has its companion as well,
    for as long; it is read from its beginning where nothing was committed.
    """

    def __init__(self, membership: Membership, companions: Mapping[str, str]) -> None:
        self._membership = membership
        self._companions = companions

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Those of the membership, and more."""
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
        """Whether the membership does."""
        return self._membership.rebalance_pending()

    def _of(
        self, partitions: Iterable[TopicPartition]
    ) -> Iterable[tuple[TopicPartition, TopicPartition]]:
        for at in partitions:
            if (topic := self._companions.get(at.topic)) is not None:
                yield at, TopicPartition(topic, at.partition)

    @property
    def deadline(self) -> float:
        """That of the membership."""
        return self._membership.deadline

    @property
    def last_heartbeat(self) -> float:
        """That of the membership."""
        return self._membership.last_heartbeat

    @property
    def lost(self) -> bool:
        """Whether the membership is."""
        return self._membership.lost
