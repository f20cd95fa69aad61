"""The partitions of a topic, stored as the bytes of the Metadata response.

A cluster may have hundreds of thousands of partitions. As objects they would take time to create,
several times the memory, and long garbage collections.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from asyncconsumer.net.metadata import LeaderMapping, Partition
from asyncconsumer.net.response_cursor import ResponseCursor

_INT_32: Final = Struct(">i")
_LEADER: Final = Struct(">ii")  # node id and epoch
_WITH_EPOCH: Final = 7  # version of the Metadata API


class PartitionTable(LeaderMapping):
    """A mapping of partition numbers to the partitions of one topic.

    Each partition is decoded when it is accessed.
    """

    __slots__ = ("_cursor", "_newer", "_positions")

    def __init__(
        self, cursor: ResponseCursor, positions: dict[int, int], newer: dict[int, Partition]
    ) -> None:
        self._cursor = cursor  # a cursor over the bytes, in the version of the response
        self._positions = positions  # position of each partition's leader field
        self._newer = newer  # partitions that were known already, with a newer leader epoch

    def __getitem__(self, number: int) -> Partition:
        position = self._positions[number]
        if (newer := self._newer.get(number)) is not None:
            return newer
        cursor = self._cursor
        (leader,) = _INT_32.unpack_from(cursor.data, position)
        position += 4 if cursor.version < _WITH_EPOCH else 8
        middle = cursor.numbers_end(position)
        end = cursor.numbers_end(middle)
        return Partition(
            leader,
            self._epoch(number),
            cursor.numbers(position, middle),
            cursor.numbers(middle, end),
        )

    def __contains__(self, number: object) -> bool:
        return number in self._positions

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        return f"<PartitionTable of {len(self)} partitions>"

    def leader(self, number: int) -> tuple[int, int] | None:
        """Return the leader's node id and leader epoch, or None if there is no such partition."""
        position = self._positions.get(number)
        if position is None:
            return None
        if (newer := self._newer.get(number)) is not None:
            return newer.leader, newer.epoch
        cursor = self._cursor
        if cursor.version >= _WITH_EPOCH:
            return _LEADER.unpack_from(cursor.data, position)
        return _INT_32.unpack_from(cursor.data, position)[0], -1

    def skip_if_equal(self, cursor: ResponseCursor, count: int) -> bool:
        """Advance `cursor` over the next `count` partitions if they equal those of this table.

        Return whether they are equal. Most responses repeat the known partitions, which are then
        not parsed again.
        """
        own = self._cursor
        if (cursor.version, count) != (own.version, len(self)):
            return False
        if not cursor.data.startswith(own.data, cursor.position):
            return False
        cursor.position += len(own.data)
        return True

    def epoch(self, number: int) -> int | None:
        """Return the leader epoch of a partition, or None if there is no such partition."""
        if number not in self._positions:
            return None
        newer = self._newer.get(number)
        return self._epoch(number) if newer is None else newer.epoch

    def _epoch(self, number: int) -> int:
        if self._cursor.version < _WITH_EPOCH:
            return -1
        (epoch,) = _INT_32.unpack_from(self._cursor.data, self._positions[number] + 4)
        return int(epoch)
