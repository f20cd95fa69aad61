"""The partitions of a topic, stored as the bytes of the Metadata response.

A cluster may have hundreds of thousands of partitions. As objects they would take time to create,
several times the memory, and long garbage collections.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from asyncconsumer.net.metadata import KnowsLeaders, Partition
from asyncconsumer.net.response_cursor import ResponseCursor

_INT_32: Final = Struct(">i")
_LEADER: Final = Struct(">ii")  # node id and epoch
_WITH_EPOCH: Final = 7  # version of the Metadata API


class PartitionTable(KnowsLeaders):
    """A mapping of partition numbers to partitions, each decoded on access."""

    __slots__ = ("_newer", "_places", "_walk")

    def __init__(
        self, walk: ResponseCursor, places: dict[int, int], newer: dict[int, Partition]
    ) -> None:
        self._walk = walk  # over the bytes, in the version of the response
        self._places = places  # position of each partition's leader field
        self._newer = newer  # partitions that were known with a newer epoch

    def __getitem__(self, number: int) -> Partition:
        at = self._places[number]
        if (newer := self._newer.get(number)) is not None:
            return newer
        walk = self._walk
        (leader,) = _INT_32.unpack_from(walk.data, at)
        at += 4 if walk.version < _WITH_EPOCH else 8
        middle = walk.numbers_end(at)
        end = walk.numbers_end(middle)
        return Partition(
            leader, self._epoch(number), walk.numbers(at, middle), walk.numbers(middle, end)
        )

    def __contains__(self, number: object) -> bool:
        return number in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"<PartitionTable of {len(self)} partitions>"

    def leader(self, number: int) -> tuple[int, int] | None:
        """Return the leader of a partition and its epoch; None if unknown."""
        at = self._places.get(number)
        if at is None:
            return None
        if (newer := self._newer.get(number)) is not None:
            return newer.leader, newer.epoch
        walk = self._walk
        if walk.version >= _WITH_EPOCH:
            return _LEADER.unpack_from(walk.data, at)
        return _INT_32.unpack_from(walk.data, at)[0], -1

    def skip_repetition(self, walk: ResponseCursor, count: int) -> bool:
        """Return whether the next `count` partitions equal these bytes.

        If so, skip them. Most responses repeat what is known.
        """
        ours = self._walk
        if (walk.version, count) != (ours.version, len(self)):
            return False
        if not walk.data.startswith(ours.data, walk.at):
            return False
        walk.at += len(ours.data)
        return True

    def epoch(self, number: int) -> int | None:
        """Return the leader epoch of a partition, or None if there is no such partition."""
        if number not in self._places:
            return None
        newer = self._newer.get(number)
        return self._epoch(number) if newer is None else newer.epoch

    def _epoch(self, number: int) -> int:
        if self._walk.version < _WITH_EPOCH:
            return -1
        (epoch,) = _INT_32.unpack_from(self._walk.data, self._places[number] + 4)
        return int(epoch)
