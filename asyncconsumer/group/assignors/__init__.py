"""The assignors of classic groups. The group leader uses them to compute the assignment.

Their assignments equal those of the Java client's assignors, so any client may lead a mixed group.
`assign` is a pure function. It also reproduces orders that depend on Java's `HashMap`.
"""

from asyncconsumer.group.assignors.protocol import (
    Assignor,
    MemberSubscription,
    PartitionsByMember,
    Racks,
)
from asyncconsumer.group.assignors.range import RangeAssignor
from asyncconsumer.group.assignors.round_robin import RoundRobinAssignor
from asyncconsumer.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "PartitionsByMember",
    "Racks",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]
