"""Fetch requests and responses as a broker decodes and encodes them.

The codec is written by hand, because a simulated test spends most of its time here.
"""

from struct import Struct
from typing import Final, NamedTuple

from asyncconsumer.testing.fake_kafka.sessions import Ask, Key, Part
from asyncconsumer.testing.fake_kafka.state import BrokerEndpoint

_FLEXIBLE, _BY_ID, _WITH_SESSION, _WITHOUT_REPLICA = 12, 13, 7, 15
_WITH_EPOCH, _WITH_LOG_START, _WITH_REPLICA = 9, 5, 11
_TAG: Final = b"\0"  # no tagged fields

_INT_16: Final = Struct(">h")
_INT_32: Final = Struct(">i")
_PAIR: Final = Struct(">qq")
_HEAD: Final = Struct(">iiib")
_SESSION: Final = Struct(">ii")
_ROWS: Final = {4: Struct(">iqi"), 5: Struct(">iqqi"), 9: Struct(">iiqqi"), 12: Struct(">iiqiqix")}
_PART_4, _PART_5 = Struct(">ihqq"), Struct(">ihqqq")
_LEADER, _DIVERGING = Struct(">iix"), Struct(">iqx")
_DIVERGING_TAG, _LEADER_TAG = 0, 1
_ENDPOINTS_TAG: Final = 0


class DecodedFetch(NamedTuple):
    """A decoded fetch request."""

    version: int
    max_wait: float  # seconds
    min_bytes: int
    max_bytes: int
    committed: bool
    session: tuple[int, int]
    asks: dict[Key, Ask]
    forgotten: list[Key]
    rack: str


class _Cursor:
    """A read position in a request."""

    def __init__(self, data: bytes, position: int, *, flexible: bool) -> None:
        self.data = data
        self.position = position
        self.flexible = flexible

    def take(self, kind: Struct) -> tuple[int, ...]:
        self.position += kind.size
        return kind.unpack_from(self.data, self.position - kind.size)

    def length(self, kind: Struct = _INT_32) -> int:
        if not self.flexible:
            return self.take(kind)[0]
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value - 1
            shift += 7

    def raw(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def text(self) -> str:
        return self.raw(self.length(_INT_16)).decode()

    def tags(self) -> None:
        if self.flexible:
            assert self.data[self.position] == 0, (
                "a tagged field that the fake broker does not know"
            )
            self.position += 1


def decode(data: bytes, position: int, version: int) -> DecodedFetch:
    """Return the Fetch request in `data`, whose body begins at the index `position`."""
    cursor = _Cursor(
        data, position if version >= _WITHOUT_REPLICA else position + 4, flexible=version >= 12
    )
    max_wait, min_bytes, max_bytes, isolation = cursor.take(_HEAD)
    session = 0, -1
    if version >= _WITH_SESSION:
        number, epoch = cursor.take(_SESSION)
        session = number, epoch
    asks = _asks(cursor, version)
    forgotten: list[Key] = []
    if version >= _WITH_SESSION:
        for _ in range(cursor.length()):
            topic = cursor.raw(16) if version >= _BY_ID else cursor.text()
            forgotten += [(topic, cursor.take(_INT_32)[0]) for _ in range(cursor.length())]
            cursor.tags()
    rack = cursor.text() if version >= _WITH_REPLICA else ""
    return DecodedFetch(
        *(version, max_wait / 1000, min_bytes, max_bytes, isolation == 1),
        *(session, asks, forgotten, rack),
    )


def _asks(cursor: _Cursor, version: int) -> dict[Key, Ask]:
    row = _ROWS[max(since for since in _ROWS if since <= version)]
    asks: dict[Key, Ask] = {}
    for _ in range(cursor.length()):
        topic = cursor.raw(16) if version >= _BY_ID else cursor.text()
        for _ in range(cursor.length()):
            values = cursor.take(row)
            epoch, last = -1, -1
            if version >= _FLEXIBLE:
                number, epoch, offset, last, _, size = values
            elif version >= _WITH_EPOCH:
                number, epoch, offset, _, size = values
            else:
                number, offset, *_, size = values
            asks[topic, number] = Ask(epoch, offset, last, size)
        cursor.tags()
    return asks


def encode(
    version: int,
    throttle_ms: int,
    outcome: tuple[int, int],
    parts: dict[Key, Part],
    endpoints: list[BrokerEndpoint],
) -> bytes:
    """Return the body of a Fetch response. `outcome` is its error code and its session id."""
    flexible = version >= _FLEXIBLE
    out = [_INT_32.pack(throttle_ms)]
    if version >= _WITH_SESSION:
        out += [_INT_16.pack(outcome[0]), _INT_32.pack(outcome[1])]
    topics: list[tuple[str | bytes, list[bytes]]] = []
    for (topic, number), part in parts.items():
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(_part(version, number, part))
    out.append(_length(len(topics), flexible=flexible))
    for topic, rows in topics:
        name = topic if isinstance(topic, bytes) else _text(topic, flexible=flexible)
        out += [name, _length(len(rows), flexible=flexible), *rows]
        if flexible:
            out.append(_TAG)
    if flexible:
        out.append(_tagged({_ENDPOINTS_TAG: _endpoints(endpoints)}) if endpoints else _TAG)
    return b"".join(out)


def _part(version: int, number: int, part: Part) -> bytes:
    flexible = version >= _FLEXIBLE
    if version >= _WITH_LOG_START:
        head = _PART_5.pack(number, part.error, part.high, part.stable, part.start)
    else:
        head = _PART_4.pack(number, part.error, part.high, part.stable)
    out = [head, _length(-1 if part.aborted is None else len(part.aborted), flexible=flexible)]
    for pair in part.aborted or ():
        out += [_PAIR.pack(*pair), _TAG if flexible else b""]
    if version >= _WITH_REPLICA:
        out.append(_INT_32.pack(part.replica))
    out += [_length(len(part.data), flexible=flexible), part.data]
    if flexible:
        tags = {}
        if part.diverging is not None:
            tags[_DIVERGING_TAG] = _DIVERGING.pack(*part.diverging)
        if part.leader is not None:
            tags[_LEADER_TAG] = _LEADER.pack(*part.leader)
        out.append(_tagged(tags) if tags else _TAG)
    return b"".join(out)


def _endpoints(endpoints: list[BrokerEndpoint]) -> bytes:
    out = [_length(len(endpoints), flexible=True)]
    for node, (host, port), rack in endpoints:
        out += [_INT_32.pack(node), _text(host, flexible=True), _INT_32.pack(port)]
        out += [_TAG if rack is None else _text(rack, flexible=True), _TAG]
    return b"".join(out)


def _tagged(fields: dict[int, bytes]) -> bytes:
    out = [_varint(len(fields))]
    for tag, content in fields.items():
        out += [_varint(tag), _varint(len(content)), content]
    return b"".join(out)


def _text(value: str, *, flexible: bool) -> bytes:
    data = value.encode()
    return (_varint(len(data) + 1) if flexible else _INT_16.pack(len(data))) + data


def _length(length: int, *, flexible: bool) -> bytes:
    return _varint(length + 1) if flexible else _INT_32.pack(length)


def _varint(value: int) -> bytes:
    if value < 128:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
