"""The interface of a group membership, independent of the group protocol."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from asyncconsumer.errors import ConsumerError
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that a member may read until the next assignment.

    `partitions` maps each partition to the number of the stream that reads it, among the streams of
    its topic. A partition of the previous assignment that is missing in this one is revoked or
    lost. A partition in `lost` may have another owner already. Revoked partitions may still be
    committed.
    """

    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: frozenset[TopicPartition] = frozenset()
    fresh: frozenset[TopicPartition] = frozenset()
    """Partitions read from their beginning if nothing is committed, usually newly created ones."""
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    """The known owners of partitions: of the whole group, or of this member's topics only."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Start offsets of added partitions, used instead of their committed offsets."""
    failure: ConsumerError | None = None
    """The error why some assigned partitions are missing. This member keeps trying to get them."""


class Membership(Protocol):
    """The interface of a group member, which yields its assignments."""

    def assignments(self) -> AsyncIterator[Assignment]:
        """Yield assignments, one after the other.

        Requesting the next assignment acknowledges the previous one. All partitions that it revoked
        must be released by then.
        """

    def rebalance_pending(self) -> bool:
        """Return whether a newer assignment is due, for which other members may be waiting.

        If so, a caller that is still loading offsets may request the next assignment at once.
        Partitions that it has not started to read are in the next assignment, too.
        """

    @property
    def deadline(self) -> float:
        """The loop time until which this member certainly owns its partitions.

        A later response from the coordinator moves the deadline.
        """

    @property
    def last_heartbeat(self) -> float:
        """The loop time of the last confirmed heartbeat, or -inf if there was none."""

    @property
    def lost(self) -> bool:
        """Whether this member is known to own nothing.

        The next assignment reports the loss as well.
        """
