"""Metadata answers as values, read in pieces.

The answer of a large cluster has hundreds of thousands of partitions, and tens of megabytes. Read
in one go it would block the event loop for seconds.
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

_A_PIECE: Final = 1_000  # partitions, of a microsecond each
_A_TOPIC: Final = 5  # what a topic costs besides, in partitions

_FLEXIBLE, _WITH_OFFLINE, _WITH_EPOCH, _WITH_ID = 9, 5, 7, 10  # versions of Metadata
_WITH_OPERATIONS, _WITH_ERROR = 8, 13
_FEW: Final = 16  # partitions that are compared at first: mostly all are alike
_NO_ID: Final = bytes(16)


class MetadataReader:
    """Reads one Metadata answer of version 4 to 13. `steps` does it, in pieces.

    Partitions are kept of the topics in `wanted` only. A partition of which `known` has a newer
    epoch, of the same topic id, is kept as it is known: the broker that answered is behind.
    """

    def __init__(
        self,
        body: bytes,
        version: int,
        wanted: Collection[str] = (),
        known: Mapping[str, Topic] = MappingProxyType({}),
    ) -> None:
        self.names: dict[str, bytes] = {}
        """Topics without an error, and their ids as bytes: zeros where there is none."""
        self.metadata = Metadata()
        """Brokers, and the topics that are wanted; after the last step."""
        self.error_code = 0
        """Of the whole answer; after the last step."""
        self._walk = ResponseCursor("Metadata", body, version, flexible=version >= _FLEXIBLE)
        self._wanted = frozenset(wanted)
        self._known = known

    def steps(self) -> Iterator[None]:
        """Read it, and yield after each piece. What makes no sense is a MalformedResponse."""
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
            walk.take(1)  # whether it is internal
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
    """The partitions of one topic, as far as they were passed over."""

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
        # with another id it was re-created, and its epochs count from the beginning
        if known is not None and (known.topic_id or UUID(bytes=_NO_ID)).bytes == topic_id:
            self.known = known.partitions

    def repeat(self, count: int) -> bool:
        """Whether the answer repeats what is known; the walk is behind the partitions then."""
        known = self.known
        if isinstance(known, PartitionTable) and known.skip_repetition(self._walk, count):
            self._repeated = known
        return self._repeated is not None

    def add(self, count: int, size: int) -> None:
        """So many partitions of that size, from where the walk is on."""
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
        """The topic, once the walk is behind all of its partitions."""
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
    """Pass over so many partitions, and note them in `rows`. Those of one layout go together."""
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
    """The size of the next partition, and which of its bytes tell the lengths of its arrays.

    None are told where lengths are so large, or tagged fields so many, that they take several.
    """
    data, start = walk.data, walk.at
    # An error code, a number, the leader and its epoch. The error is a leader or a replica that is
    # gone: the leader field tells.
    at = start + (14 if walk.version >= _WITH_EPOCH else 10)
    flexible, layout = walk.version >= _FLEXIBLE, list[int]()
    usual = True
    for _ in range(3 if walk.version >= _WITH_OFFLINE else 2):  # replicas, in sync, offline
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
    """How many of the next partitions, at most so many, have the layout of the first."""
    data, at = walk.data, walk.at
    count = min(most, (len(data) - at) // size) if layout else 1
    for place in layout:
        column = data[at + place : at + count * size : size]
        count -= len(column.lstrip(column[:1]))
    return count
