"""Who reads which partition in a classic group: its leader decides, with one of these.

Assignments are those of the Java client's assignors, to the last partition, so it does not matter
who leads a group. `assign` is pure; orders that Java leaves to its HashMaps are kept.
"""

from asyncconsumer.group.assignors.protocol import Assignment, Assignor, MemberSubscription, Racks
from asyncconsumer.group.assignors.range import RangeAssignor
from asyncconsumer.group.assignors.round_robin import RoundRobinAssignor
from asyncconsumer.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "Racks",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]
