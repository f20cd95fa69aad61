"""Encoding and decoding of the members' registrations in ZooKeeper."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from asyncconsumer.errors import BadZnode
from asyncconsumer.group.zookeeper.filters import PatternKind, StreamSubscription, matcher
from asyncconsumer.group.zookeeper.regex_parser import PatternError
from asyncconsumer.zookeeper.registry import decode_text

_MAX_BYTES: Final = 2**20
_MAX_STREAMS: Final = 2**16  # streams of one member in all its topics; each needs a thread id
_MAX_TOPICS: Final = 2**12  # topics that one member may name


def write(subscription: StreamSubscription, now_ms: int) -> bytes:
    """Encode the registration of a member, with the keys and the key order of Kafka 1.1."""
    fields = {
        "version": 1,
        "subscription": dict(subscription.streams),
        "pattern": subscription.pattern.value,
        "timestamp": str(now_ms),
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def read(path: str, data: bytes | None) -> StreamSubscription:
    """Decode the subscription in a member's registration. Raise `BadZnode` if it is malformed.

    Kafka's own members abort the whole rebalance if one registration is malformed. Callers of this
    function ignore such a member and log it instead.
    """
    fields = _parse(path, data)
    pattern, streams = fields.get("pattern"), fields.get("subscription")
    if not isinstance(pattern, str) or not isinstance(streams, dict):
        raise BadZnode(path, "a registration needs a pattern and a subscription")
    for topic, count in streams.items():
        if not _is_count(count):
            raise BadZnode(path, f"{str(count)[:20]!r} streams of {topic[:80]!r} are invalid")
    if len(streams) > _MAX_TOPICS or sum(streams.values()) > _MAX_STREAMS:
        raise BadZnode(
            path,
            f"{sum(streams.values())} streams of {len(streams)} topics are more than "
            f"{_MAX_STREAMS} of {_MAX_TOPICS}",
        )
    try:
        kind = PatternKind(pattern)
    except ValueError:
        kind = PatternKind.STATIC  # as Kafka treats any other value
    subscription = StreamSubscription(
        MappingProxyType(streams), kind if streams else PatternKind.STATIC
    )
    if subscription.wildcard:
        return _checked(path, subscription)
    return subscription


def _checked(path: str, subscription: StreamSubscription) -> StreamSubscription:
    """Return the subscription, and keep only the first entry of a wildcard subscription.

    Raise `BadZnode` if its pattern is not supported.
    """
    expression, count = next(iter(subscription.streams.items()))
    try:
        matcher(expression)
    except PatternError as error:
        raise BadZnode(path, f"{expression[:80]!r} is not a supported pattern: {error}") from None
    return StreamSubscription(MappingProxyType({expression: count}), subscription.pattern)


def _parse(path: str, data: bytes | None) -> Mapping[str, Any]:
    text = decode_text(path, data, _MAX_BYTES)
    for candidate in (text, text.replace("\\", "\\\\")):  # before 1.0.1, "\\" is not escaped
        try:
            fields = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(fields, dict):
            return fields
        break
    raise BadZnode(path, f"it is not a JSON object: {text[:40]!r}")


def _is_count(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MAX_STREAMS
