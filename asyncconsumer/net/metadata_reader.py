"""Incremental parsing of Metadata responses.

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
from asyncconsumer.net.response_cursor import CUT, ResponseCursor
from asyncconsumer.net.topic_validation import accepts
from asyncconsumer.types import Address

_A_PIECE: Final = 1_000  # partitions; each takes about a microsecond
_A_TOPIC: Final = 5  # cost of a topic itself, in partitions

_FLEXIBLE, _WITH_OFFLINE, _WITH_EPOCH, _WITH_ID = 9, 5, 7, 10  # versions of the Metadata API
_WITH_OPERATIONS, _WITH_ERROR = 8, 13
_FEW: Final = 16  # partitions compared at first; most have the same layout
_NO_ID: Final = bytes(16)


class MetadataReader:
    """A parser of one Metadata response of version 4 to 13. `steps` parses it in pieces.

    Partitions are stored for the topics in `wanted` only. If `known` has a newer leader epoch of
    the same topic id, the known partition is kept, because the broker that answered has old
    metadata.
    """

    def __init__(
        self,
        body: bytes,
        version: int,
        wanted: Collection[str] = (),
        known: Mapping[str, Topic] = MappingProxyType({}),
    ) -> None:
        self.names: dict[str, bytes] = {}
        """Topics without an error, and their ids as bytes (zeros for no id)."""
        self.metadata = Metadata()
        """The brokers and the topics in `wanted`, set by the last step."""
        self.error_code = 0
        """The error code of the whole response, set by the last step."""
        self._walk = ResponseCursor("Metadata", body, version, flexible=version >= _FLEXIBLE)
        self._wanted = frozenset(wanted)
        self._known = known

    def steps(self) -> Iterator[None]:
        """Parse the response, and yield after each piece.

        Invalid data raises `MalformedResponse`.
        """
        try:
            yield from self._steps()
        except (IndexError, struct.error):
            self._walk.fail(CUT)

    def _steps(self) -> Iterator[None]:
        walk, version = self._walk, self._walk.version
        walk.int32()  # throttle time
        brokers: dict[int, Broker] = {}
        for _ in range(walk.count(11)):
            broker = self._broker()
            brokers[broker.node_id] = broker
        walk.text()  # cluster id
        controller = walk.int32()
        topics: dict[str, Topic] = {}
        yield from self._topics(topics)
        if _WITH_OPERATIONS <= version <= _WITH_ID:
            walk.int32()
        self.error_code = walk.int16() if version >= _WITH_ERROR else 0
        walk.skip_tags()
        if walk.at != len(walk.data):
            walk.fail("bytes after its end" if walk.at < len(walk.data) else CUT)
        self.metadata = Metadata(MappingProxyType(brokers), controller, MappingProxyType(topics))

    def _broker(self) -> Broker:
        walk = self._walk
        node_id, host, port, rack = walk.int32(), walk.text(), walk.int32(), walk.text()
        walk.skip_tags()
        if host is None or not (address := Address(host, port)).is_possible:
            walk.fail(f"a broker at {(host, port)}")
        return Broker(node_id, address, rack)

    def _topics(self, topics: dict[str, Topic]) -> Iterator[None]:
        walk, spent = self._walk, 0
        for _ in range(walk.count(5)):
            code, name = walk.int16(), walk.text()
            topic_id = walk.take(16) if walk.version >= _WITH_ID else _NO_ID
            walk.take(1)  # is_internal
            count = walk.count(14)
            rows = None
            accepted = accepts(name, code)
            if name is not None and accepted and name in self._wanted:
                rows = _Rows(walk, name, topic_id, self._known.get(name))
            if rows is not None and rows.repeat(count):
                count, spent = 0, spent + _A_TOPIC
            while count:
                size = min(count, _A_PIECE)
                _pass_over(walk, size, rows)
                count, spent = count - size, spent + size
                if spent >= _A_PIECE:
                    spent = 0
                    yield
            if rows is not None:
                topics[rows.name] = rows.topic(code)
            if walk.version >= _WITH_OPERATIONS:
                walk.int32()
            walk.skip_tags()
            if name and accepted and not code:
                self.names[name] = topic_id
            spent += _A_TOPIC


class _Rows:
    """The partitions of one topic, as far as they were parsed."""

    def __init__(
        self, walk: ResponseCursor, name: str, topic_id: bytes, known: Topic | None
    ) -> None:
        self.name = name
        self.start = walk.at
        self.places: dict[int, int] = {}
        self.newer: dict[int, Partition] = {}
        self.known: Mapping[int, Partition] = {}
        self._walk = walk
        self._id = topic_id
        self._repeated: PartitionTable | None = None
        # a topic with another id was re-created, and its epochs start again
        if known is not None and (known.topic_id or UUID(bytes=_NO_ID)).bytes == topic_id:
            self.known = known.partitions

    def repeat(self, count: int) -> bool:
        """Return whether the response repeats the known partitions, and skip them if so."""
        known = self.known
        if isinstance(known, PartitionTable) and known.skip_repetition(self._walk, count):
            self._repeated = known
        return self._repeated is not None

    def add(self, count: int, size: int) -> None:
        """Add `count` partitions of `size` bytes each, at the current position."""
        walk = self._walk
        packed = walk.data[walk.at : walk.at + count * size]
        if walk.version >= _WITH_EPOCH:
            told = list(struct.iter_unpack(f">2xi4xi{size - 14}x", packed))
        else:
            told = [(number, -1) for (number,) in struct.iter_unpack(f">2xi{size - 6}x", packed)]
        first = walk.at + 6 - self.start
        places = range(first, first + len(packed), size)
        numbers = (number for number, _ in told)
        self.places.update(zip(numbers, places, strict=True))
        if known := self.known:
            epoch_of = known.epoch if isinstance(known, PartitionTable) else _epochs(known)
            for number, epoch in told:
                if (before := epoch_of(number)) is not None and epoch < before:
                    self.newer[number] = known[number]

    def topic(self, code: int) -> Topic:
        """Return the topic, once all of its partitions were parsed."""
        table = self._repeated or PartitionTable(
            self._walk.part(self.start), self.places, self.newer
        )
        return Topic(
            self.name,
            None if self._id == _NO_ID else UUID(bytes=self._id),
            table,
            BrokerError.of(code, f"topic {self.name!r}") if code else None,
        )


def _epochs(known: Mapping[int, Partition]) -> Callable[[int], int | None]:
    return {number: partition.epoch for number, partition in known.items()}.get


def _pass_over(walk: ResponseCursor, count: int, rows: _Rows | None) -> None:
    """Skip `count` partitions and add them to `rows`. Equal layouts are processed together."""
    most = _FEW
    while count:
        size, layout = _next_row(walk)
        alike = _alike(walk, size, layout, min(count, most))
        if rows is not None:
            rows.add(alike, size)
        walk.at += alike * size
        count -= alike
        most = 2 * most if alike == most else _FEW


def _next_row(walk: ResponseCursor) -> tuple[int, list[int]]:
    """Return the size of the next partition, and which of its bytes are array lengths.

    The list is empty if a length takes several bytes, or if there are tagged fields.
    """
    data, start = walk.data, walk.at
    # The fields are an error code, a number, the leader and its epoch. The error says that a leader
    # or a replica is missing, which the leader field shows as well.
    at = start + (14 if walk.version >= _WITH_EPOCH else 10)
    flexible, layout = walk.version >= _FLEXIBLE, list[int]()
    usual = True
    # replicas, in-sync replicas, offline replicas
    for _ in range(3 if walk.version >= _WITH_OFFLINE else 2):
        layout += range(at - start, at - start + (1 if flexible else 4))
        usual = usual and not (flexible and data[at] >= 0x80)
        at = walk.numbers_end(at)
    if flexible:
        layout.append(at - start)
        usual = usual and data[at] == 0
        at = walk.tags_end(at)
    walk.at = start
    if at > len(data):
        walk.fail(CUT)
    return at - start, layout if usual else []


def _alike(walk: ResponseCursor, size: int, layout: list[int], most: int) -> int:
    """Return how many of the next partitions have the layout of the first, up to `most`."""
    data, at = walk.data, walk.at
    count = min(most, (len(data) - at) // size) if layout else 1
    for place in layout:
        column = data[at + place : at + count * size : size]
        count -= len(column.lstrip(column[:1]))
    return count
