"""Metadata responses of large clusters, encoded quickly."""

import struct
from collections.abc import Mapping
from uuid import UUID

FLEXIBLE, OLD = 12, 5  # the supported versions of Metadata


def large_answer(
    topics: Mapping[str, int],
    *,
    brokers: Mapping[int, tuple[str, int]],
    replicas: int = 3,
    version: int = FLEXIBLE,
) -> bytes:
    """Return the body of a response. `topics` has numbers of partitions; leaders take turns."""
    nodes, new = list(brokers), version == FLEXIBLE
    length, text = (_varint, _text) if new else (_int32, _old_text)
    tags, null, epoch = (b"\0", b"\0", _int32(7)) if new else (b"", b"\xff\xff", b"")
    none = _varint(1) if new else _int32(0)
    parts = [_int32(0), length(len(brokers) + new)]
    for node, (host, port) in brokers.items():
        parts += [_int32(node), text(host), _int32(port), null, tags]
    parts += [null, _int32(1), length(len(topics) + new)]
    for index, (name, count) in enumerate(topics.items(), 1):
        topic_id = UUID(int=index).bytes if new else b""
        parts += [b"\0\0", text(name), topic_id, b"\0", length(count + new)]
        for number in range(count):
            some = [nodes[(number + n) % len(nodes)] for n in range(replicas)]
            array = length(replicas + new) + struct.pack(f">{replicas}i", *some)
            parts += [struct.pack(">hii", 0, number, some[0]), epoch, array, array, none, tags]
        parts.append(_int32(0) + tags if new else b"")
    return b"".join([*parts, tags])


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _old_text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def _text(value: str) -> bytes:
    return _varint(len(value.encode()) + 1) + value.encode()


def _varint(value: int) -> bytes:
    result = b""
    while value > 127:
        result += bytes([value & 127 | 128])
        value >>= 7
    return result + bytes([value])
