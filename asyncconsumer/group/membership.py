"""What it means to be a member of a group, whoever coordinates it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from asyncconsumer.errors import ConsumerError
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Assignment:
    """From now on these partitions are ours, and no others, until there is another assignment.

    `partitions` says which of its topic's streams reads each. Of those that we had before and that
    are not among them, the ones in `lost` are somebody else's already; the others may be committed.
    """

    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: frozenset[TopicPartition] = frozenset()
    fresh: frozenset[TopicPartition] = frozenset()
    """Partitions that appeared while we were a member: nothing in them is old."""
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Who reads which partition, as far as it is known: the whole group, or our topics of it."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where to begin with partitions that are new, in place of the committed offset."""
    failure: ConsumerError | None = None
    """Why we do not have what is due to us. It is tried on."""


class Membership(Protocol):
    """A member of a group. Its assignments come one after the other, for as long as it lives."""

    def assignments(self) -> AsyncIterator[Assignment]:
        """Asking for the next one is the receipt for the last: what it took away is let go of."""

    def rebalance_pending(self) -> bool:
        """Whether another assignment is due, for which others may wait.

        If so, who is held up may ask for it at once: what was not begun is told again with it.
        """

    @property
    def deadline(self) -> float:
        """Until when, by our own clock, what we have is certainly ours, if we hear no more."""

    @property
    def last_heartbeat(self) -> float:
        """When whoever coordinates the group last heard of us, by our own clock; -inf if never."""

    @property
    def lost(self) -> bool:
        """Whether it is known that nothing is ours any more; an assignment will say so, too."""
