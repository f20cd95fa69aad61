"""Metadata answers as values, read in pieces.

The answer of a large cluster has hundreds of thousands of partitions, and tens of megabytes. Read
in one go it would block the event loop for seconds.
"""

from collections.abc import Collection, Iterator, Mapping
from struct import Struct, error
from types import MappingProxyType
from typing import Final
from uuid import UUID

from asyncconsumer.errors import BrokerError
from asyncconsumer.model import Address
from asyncconsumer.net.legal_names import accepts
from asyncconsumer.net.metadata import Broker, Metadata, Partition, Topic
from asyncconsumer.net.partition_table import PartitionTable
from asyncconsumer.net.walk import CUT, Walk

_A_PIECE: Final = 1_000  # partitions, of a microsecond each
_A_TOPIC: Final = 5  # what a topic costs besides, in partitions

_FLEXIBLE, _WITH_OFFLINE, _WITH_EPOCH, _WITH_ID = 9, 5, 7, 10  # versions of Metadata
_WITH_OPERATIONS, _WITH_ERROR = 8, 13
_INT_32: Final = Struct(">i")
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
        self._walk = Walk("Metadata", body, version, flexible=version >= _FLEXIBLE)
        self._wanted = frozenset(wanted)
        self._known = known

    def steps(self) -> Iterator[None]:
        """Read it, and yield after each piece. What makes no sense is a MalformedResponse."""
        try:
            yield from self._steps()
        except (IndexError, error):
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

    def __init__(self, walk: Walk, name: str, topic_id: bytes, known: Topic | None) -> None:
        self.name = name
        self.start = walk.at
        self.places: dict[int, int] = {}
        self.newer: dict[int, Partition] = {}
        self.known: Mapping[int, Partition] = {}
        self._walk = walk
        self._id = topic_id
        # with another id it was re-created, and its epochs count from the beginning
        if known is not None and (known.topic_id or UUID(bytes=_NO_ID)).bytes == topic_id:
            self.known = known.partitions

    def add(self, number: int, at: int, epoch: int) -> None:
        """A partition, and where its leader stands in the answer."""
        self.places[number] = at - self.start
        known = self.known
        if isinstance(known, PartitionTable):
            before = known.epoch(number)
        else:
            before = known[number].epoch if number in known else None
        if before is not None and epoch < before:
            self.newer[number] = known[number]

    def topic(self, code: int) -> Topic:
        """The topic, once the walk is behind all of its partitions."""
        walk = self._walk.part(self.start)
        return Topic(
            self.name,
            None if self._id == _NO_ID else UUID(bytes=self._id),
            PartitionTable(walk, self.places, self.newer),
            BrokerError.of(code, f"topic {self.name!r}") if code else None,
        )


def _pass_over(walk: Walk, count: int, rows: _Rows | None) -> None:
    """Pass over so many partitions, and note them in `rows`."""
    data, at = walk.data, walk.at
    numbers_end, tags_end = walk.numbers_end, walk.tags_end
    head = 8 if walk.version >= _WITH_EPOCH else 4  # leader, epoch
    arrays = 3 if walk.version >= _WITH_OFFLINE else 2  # replicas, those in sync, those offline
    for _ in range(count):
        # An error code and a number. The error is a leader or a replica that is gone: the leader
        # field tells.
        start = at + 6
        at = start + head
        for _ in range(arrays):
            at = numbers_end(at)
        at = tags_end(at)
        if rows is not None:
            (number,) = _INT_32.unpack_from(data, start - 4)
            epoch = _INT_32.unpack_from(data, start + 4)[0] if head == 8 else -1
            rows.add(number, start, epoch)
    walk.at = at
    if at > len(data):
        walk.fail(CUT)
