"""Registrations of members, to the byte."""

import json
from types import MappingProxyType

import pytest

from asyncconsumer.errors import BadZnode, ConfigError
from asyncconsumer.group.zookeeper import registration
from asyncconsumer.group.zookeeper.filters import (
    Blacklist,
    PatternKind,
    StreamSubscription,
    Whitelist,
)

pytestmark = pytest.mark.fast
PATH = "/consumers/g/ids/g_m1"


def test_a_registration_is_written_as_by_kafka_1_1() -> None:
    static = StreamSubscription({"t1": 2})
    assert registration.write(static, 1794788067191) == (
        b'{"version":1,"subscription":{"t1":2},"pattern":"static","timestamp":"1794788067191"}'
    )
    white = Whitelist(" t1 ").subscription(1)
    assert registration.write(white, 5) == (
        b'{"version":1,"subscription":{"t1":1},"pattern":"white_list","timestamp":"5"}'
    )


def test_a_pattern_is_escaped_once_and_read_back_unchanged() -> None:
    subscription = Blacklist(r"t\d+|a/b").subscription(3)
    data = registration.write(subscription, 0)
    assert rb'"t\\d+|a/b"' in data
    assert registration.read(PATH, data) == subscription


def test_registrations_of_scala_members_are_read_unchanged() -> None:
    twice = b'{"version":1,"subscription":{"t\\\\\\\\d+":1},"pattern":"white_list","timestamp":"1"}'
    assert dict(registration.read(PATH, twice).streams) == {"t\\\\d+": 1}
    old = b'{"version":1,"subscription":{"t\\d+":1},"pattern":"white_list","timestamp":"1"}'
    assert dict(registration.read(PATH, old).streams) == {"t\\d+": 1}


def test_only_pattern_and_subscription_are_read() -> None:
    read = registration.read(PATH, b'{"pattern":"no such word","subscription":{"t":1},"more":[]}')
    assert read == StreamSubscription(MappingProxyType({"t": 1}))
    empty = registration.read(PATH, b'{"pattern":"white_list","subscription":{}}')
    assert empty.pattern is PatternKind.STATIC
    first = registration.read(PATH, b'{"pattern":"black_list","subscription":{"a":1,"b":2}}')
    assert dict(first.streams) == {"a": 1}


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"nonsense",
        b"[]",
        b"\xff\xfe",
        b"x" * (2**20 + 1),
        b'{"subscription":{"t":1}}',
        b'{"pattern":"static"}',
        b'{"pattern":"static","subscription":["t"]}',
        b'{"pattern":"static","subscription":{"t":"1"}}',
        b'{"pattern":"static","subscription":{"t":-1}}',
        b'{"pattern":"static","subscription":{"t":true}}',
        b'{"pattern":"static","subscription":{"t":2147483648}}',
        b'{"pattern":"white_list","subscription":{"(":1}}',
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data)[:40],
)
def test_an_invalid_registration_is_a_typed_error(data: bytes | None) -> None:
    with pytest.raises(BadZnode, match=PATH):
        registration.read(PATH, data)


def test_filters_match_whole_names_and_exclude_internal_topics() -> None:
    topics = ["orders", "orders.eu", "payments", "__consumer_offsets", "__transaction_state"]
    white = Whitelist("orders.*, pay ments").subscription(2)
    assert white.topics(topics, exclude_internal=True) == {
        "orders": 2,
        "orders.eu": 2,
        "payments": 2,
    }
    assert Whitelist("order").subscription(1).topics(topics, exclude_internal=True) == {}
    black = Blacklist('"orders.*"').subscription(1)
    assert black.topics(topics, exclude_internal=True) == {"payments": 1}
    assert black.topics(topics, exclude_internal=False).keys() == {
        "payments",
        "__consumer_offsets",
        "__transaction_state",
    }
    static = StreamSubscription({"__consumer_offsets": 1, "missing": 1})
    assert static.topics(topics, exclude_internal=True) == {"__consumer_offsets": 1, "missing": 1}


@pytest.mark.parametrize("expression", ["(", "", "  ", '""'])
def test_an_invalid_filter_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="Whitelist"):
        Whitelist(expression)


def test_non_ascii_topics_are_valid_json() -> None:
    data = registration.write(StreamSubscription({"ä": 1}), 0)
    assert json.loads(data)["subscription"] == {"ä": 1}
