"""The incremental parser of Metadata responses.

The response of a large cluster has hundreds of thousands of partitions and tens of megabytes.
Parsed in one go it would block the event loop for seconds.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from asyncconsumer.errors import BrokerError
from asyncconsumer.net.metadata import Broker, Metadata, Partition, Topic
from asyncconsumer.net.partition_table import PartitionTable
from asyncconsumer.net.response_cursor import TRUNCATED, ResponseCursor
from asyncconsumer.net.topic_validation import is_usable
from asyncconsumer.types import Address

_PIECE_SIZE: Final = 1_000  # partitions; each takes about a microsecond
_TOPIC_COST: Final = 5  # cost of a topic itself, in partitions

_FLEXIBLE, _WITH_OFFLINE, _WITH_EPOCH, _WITH_ID = 9, 5, 7, 10  # versions of the Metadata API
_WITH_OPERATIONS, _WITH_ERROR = 8, 13
_FIRST_COMPARED: Final = 16  # partitions compared at first; if all are equal, the number is doubled
_NO_ID: Final = bytes(16)


class MetadataReader:
    """A parser of one Metadata response of version 4 to 13. `steps` parses it in pieces.

    Partitions are stored for the topics in `topics` only. If `known` has a newer leader epoch of
    the same topic id, the known partition is kept, because the broker that answered has old
    metadata.
    """

    def __init__(
        self,
        body: bytes,
        version: int,
        topics: Collection[str] = (),
        known: Mapping[str, Topic] = MappingProxyType({}),
    ) -> None:
        self.names: dict[str, bytes] = {}
        """Topics without an error, and their ids as bytes (zeros for no id)."""
        self.metadata = Metadata()
        """The brokers and the topics in `topics`, set by the last step."""
        self.error_code = 0
        """The error code of the whole response, set by the last step."""
        self._cursor = ResponseCursor("Metadata", body, version, flexible=version >= _FLEXIBLE)
        self._topics_to_store = frozenset(topics)
        self._known = known

    def steps(self) -> Iterator[None]:
        """Parse the response in pieces, and yield after each piece.

        Invalid data raises `MalformedResponse`.
        """
        try:
            yield from self._steps()
        except (IndexError, struct.error):
            self._cursor.fail(TRUNCATED)

    def _steps(self) -> Iterator[None]:
        cursor, version = self._cursor, self._cursor.version
        cursor.int32()  # throttle time
        brokers: dict[int, Broker] = {}
        for _ in range(cursor.count(11)):
            broker = self._broker()
            brokers[broker.node_id] = broker
        cursor.text()  # cluster id
        controller = cursor.int32()
        topics: dict[str, Topic] = {}
        yield from self._topics(topics)
        if _WITH_OPERATIONS <= version <= _WITH_ID:
            cursor.int32()
        self.error_code = cursor.int16() if version >= _WITH_ERROR else 0
        cursor.skip_tags()
        if cursor.position != len(cursor.data):
            cursor.fail("bytes after its end" if cursor.position < len(cursor.data) else TRUNCATED)
        self.metadata = Metadata(MappingProxyType(brokers), controller, MappingProxyType(topics))

    def _broker(self) -> Broker:
        cursor = self._cursor
        node_id, host, port, rack = cursor.int32(), cursor.text(), cursor.int32(), cursor.text()
        cursor.skip_tags()
        if host is None or not (address := Address(host, port)).is_possible:
            cursor.fail(f"a broker with the invalid address {(host, port)}")
        return Broker(node_id, address, rack)

    def _topics(self, topics: dict[str, Topic]) -> Iterator[None]:
        cursor, work = self._cursor, 0
        for _ in range(cursor.count(5)):
            code, name = cursor.int16(), cursor.text()
            topic_id = cursor.take(16) if cursor.version >= _WITH_ID else _NO_ID
            cursor.take(1)  # is_internal
            count = cursor.count(14)
            rows = None
            accepted = is_usable(name, code)
            if name is not None and accepted and name in self._topics_to_store:
                rows = _Rows(cursor, name, topic_id, self._known.get(name))
            if rows is not None and rows.skip_if_equal(count):
                count, work = 0, work + _TOPIC_COST
            while count:
                size = min(count, _PIECE_SIZE)
                _skip_rows(cursor, size, rows)
                count, work = count - size, work + size
                if work >= _PIECE_SIZE:
                    work = 0
                    yield
            if rows is not None:
                topics[rows.name] = rows.topic(code)
            if cursor.version >= _WITH_OPERATIONS:
                cursor.int32()
            cursor.skip_tags()
            if name and accepted and not code:
                self.names[name] = topic_id
            work += _TOPIC_COST


class _Rows:
    """The partitions of one topic in a Metadata response, as far as the response is parsed."""

    def __init__(
        self, cursor: ResponseCursor, name: str, topic_id: bytes, known: Topic | None
    ) -> None:
        self.name = name
        self.start = cursor.position
        self.positions: dict[int, int] = {}
        self.newer: dict[int, Partition] = {}
        self.known: Mapping[int, Partition] = {}
        self._cursor = cursor
        self._id = topic_id
        self._unchanged: PartitionTable | None = None
        # A topic with another id was re-created, and its leader epochs start again.
        if known is not None and (known.topic_id or UUID(bytes=_NO_ID)).bytes == topic_id:
            self.known = known.partitions

    def skip_if_equal(self, count: int) -> bool:
        """Skip the `count` partitions of the topic in the response, if they equal the known ones.

        Return whether they were skipped.
        """
        known = self.known
        if isinstance(known, PartitionTable) and known.skip_if_equal(self._cursor, count):
            self._unchanged = known
        return self._unchanged is not None

    def add(self, count: int, size: int) -> None:
        """Add the next `count` partitions of the response. Each of them takes `size` bytes."""
        cursor = self._cursor
        packed = cursor.data[cursor.position : cursor.position + count * size]
        if cursor.version >= _WITH_EPOCH:
            rows = list(struct.iter_unpack(f">2xi4xi{size - 14}x", packed))
        else:
            rows = [(number, -1) for (number,) in struct.iter_unpack(f">2xi{size - 6}x", packed)]
        first = cursor.position + 6 - self.start
        positions = range(first, first + len(packed), size)
        numbers = (number for number, _ in rows)
        self.positions.update(zip(numbers, positions, strict=True))
        if known := self.known:
            epoch_of = known.epoch if isinstance(known, PartitionTable) else _epochs(known)
            for number, epoch in rows:
                if (before := epoch_of(number)) is not None and epoch < before:
                    self.newer[number] = known[number]

    def topic(self, code: int) -> Topic:
        """Return the topic. Call this after all of its partitions were added or skipped.

        `code` is the error code of the topic in the response.
        """
        table = self._unchanged or PartitionTable(
            self._cursor.part(self.start), self.positions, self.newer
        )
        return Topic(
            self.name,
            None if self._id == _NO_ID else UUID(bytes=self._id),
            table,
            BrokerError.from_code(code, f"topic {self.name!r}") if code else None,
        )


def _epochs(known: Mapping[int, Partition]) -> Callable[[int], int | None]:
    return {number: partition.epoch for number, partition in known.items()}.get


def _skip_rows(cursor: ResponseCursor, count: int, rows: _Rows | None) -> None:
    """Advance the cursor over the next `count` partitions, and add them to `rows` if it is given.

    Adjacent partitions with equal array lengths are added together, which is faster.
    """
    limit = _FIRST_COMPARED
    while count:
        size, layout = _next_row(cursor)
        same = _count_same_layout(cursor, size, layout, min(count, limit))
        if rows is not None:
            rows.add(same, size)
        cursor.position += same * size
        count -= same
        limit = 2 * limit if same == limit else _FIRST_COMPARED


def _next_row(cursor: ResponseCursor) -> tuple[int, list[int]]:
    """Return the size of the next partition in bytes, and the positions of array lengths in it.

    The cursor does not move. The list of positions is empty if a length takes several bytes, or if
    there are tagged fields. Such a partition is added alone.
    """
    data, start = cursor.data, cursor.position
    # The fields are an error code, a number, the leader and its epoch. The error says that a leader
    # or a replica is missing, which the leader field shows as well.
    position = start + (14 if cursor.version >= _WITH_EPOCH else 10)
    flexible, layout = cursor.version >= _FLEXIBLE, list[int]()
    usual = True
    # replicas, in-sync replicas, offline replicas
    for _ in range(3 if cursor.version >= _WITH_OFFLINE else 2):
        layout += range(position - start, position - start + (1 if flexible else 4))
        usual = usual and not (flexible and data[position] >= 0x80)
        position = cursor.numbers_end(position)
    if flexible:
        layout.append(position - start)
        usual = usual and data[position] == 0
        position = cursor.tags_end(position)
    cursor.position = start
    if position > len(data):
        cursor.fail(TRUNCATED)
    return position - start, layout if usual else []


def _count_same_layout(cursor: ResponseCursor, size: int, layout: list[int], limit: int) -> int:
    """Return how many partitions from the next one on have the same array lengths as it.

    The count is at least 1. `size` is its size in bytes. `layout` has the positions of its array
    lengths, relative to its start. At most `limit` partitions are compared. If `layout` is empty,
    none is compared, and the result is 1.
    """
    data, position = cursor.data, cursor.position
    count = min(limit, (len(data) - position) // size) if layout else 1
    for place in layout:
        column = data[position + place : position + count * size : size]
        count -= len(column.lstrip(column[:1]))
    return count
