"""Sticky division among members that all want the same topics: everyone gets the same share."""

from collections import deque
from collections.abc import Mapping

from asyncconsumer.group.assignors.claims import Claims
from asyncconsumer.group.assignors.protocol import Assignment
from asyncconsumer.model import TopicPartition
from asyncconsumer.wire.java import utf16


def divide_alike(partitions: Mapping[str, int], claims: Claims) -> Assignment:
    """Members keep what they have up to their share, and are then filled up in turns."""
    everything = [
        TopicPartition(topic, number)
        for topic in sorted(partitions, key=utf16)
        for number in range(partitions[topic])
    ]
    share, rest = divmod(len(everything), len(claims.held))
    assignment: Assignment = {}
    for member, held in claims.held.items():
        kept = sorted(held.keys() - claims.contested, key=lambda p: (p.partition, utf16(p.topic)))
        # so many may have one more than the share: those who come first and have it
        one_more = rest > 0 and len(kept) > share
        rest -= one_more
        assignment[member] = kept[: share + one_more]

    def waiting(count: range) -> deque[str]:
        return deque(sorted((m for m in assignment if len(assignment[m]) in count), key=utf16))

    hungry = waiting(range(share))
    next_for_more = waiting(range(share, share + 1)) if rest else deque()
    kept_by_all = {partition for kept in assignment.values() for partition in kept}
    for partition in everything:
        if partition in kept_by_all:
            continue
        member = (hungry or next_for_more).popleft()
        assignment[member].append(partition)
        if len(assignment[member]) < share:
            hungry.append(member)
        elif len(assignment[member]) == share:
            next_for_more.append(member)
    return assignment
