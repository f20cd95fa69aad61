"""A classic group as DescribeGroups reports it: members, subscriptions and assignments."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from asyncconsumer.group.classic.leader import decode_subscriptions
from asyncconsumer.net.discovery import PartitionNumbers
from asyncconsumer.protocol.subscription_codec import ConsumerProtocolAssignment

_STABLE: Final = "Stable"


class GroupDescription(NamedTuple):
    """The members of a group and the partitions assigned to them.

    `assigned` maps each subscribed topic to its assigned partitions, which may be none. It is empty
    while the group rebalances.
    """

    stable: bool
    member_ids: frozenset[str]
    assigned: PartitionNumbers

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the description of one group. `row` is its row in a DescribeGroups response."""
        members, stable = row["members"], row["group_state"] == _STABLE
        return cls(
            stable=stable,
            member_ids=frozenset(member["member_id"] for member in members),
            assigned=_assigned(members) if stable else {},
        )


def _assigned(members: Sequence[Mapping[str, Any]]) -> PartitionNumbers:
    numbers: dict[str, set[int]] = {
        topic: set()
        for subscription in decode_subscriptions(members).values()
        for topic in subscription.topics
    }
    for member in members:
        if encoded := member["assignment"]:
            for tp in ConsumerProtocolAssignment.decode(encoded).assigned_partitions:
                numbers.setdefault(tp.topic, set()).add(tp.partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in numbers.items()}
