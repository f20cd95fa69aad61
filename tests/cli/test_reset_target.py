"""The options `--to` and `--topic` of `groups reset`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer import EARLIEST, LATEST, ConfigError, TopicPartition
from asyncconsumer.admin.reset_targets import (
    ResetTarget,
    parse_target,
    parse_topic,
    select_partitions,
)
from asyncconsumer.errors import UnknownTopicOrPartition

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", ResetTarget(timestamp=EARLIEST)),
        ("latest", ResetTarget(timestamp=LATEST)),
        ("0", ResetTarget(offset=0)),
        ("9223372036854775807", ResetTarget(offset=2**63 - 1)),
        ("-5", ResetTarget(shift=-5)),
        ("+5", ResetTarget(shift=5)),
        ("2024-05-31T12:00:00Z", ResetTarget(timestamp=1717156800000)),
        ("2024-05-31T12:00:00.5+02:00", ResetTarget(timestamp=1717149600500)),
        ("1901-01-01T00:00:00Z", ResetTarget(timestamp=0)),
    ],
)
def test_a_target_is_parsed(text: str, target: ResetTarget) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("soon", "must be earliest, latest, an offset"),
        ("", "must be earliest"),
        ("--5", "must be earliest"),
        ("1.5", "must be earliest"),
        ("9223372036854775808", "must be at most 9223372036854775807"),
        ("2024-05-31T12:00:00", "needs a time zone"),
    ],
)
def test_an_invalid_target_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_target(text)


@given(st.text())
def test_any_text_is_a_target_or_an_error(text: str) -> None:
    try:
        target = parse_target(text)
    except ConfigError:
        return
    assert [target.offset, target.shift, target.timestamp].count(None) == 2


def test_topics_and_their_partitions_are_parsed() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:3,0, 3") == ("orders", [0, 3])
    for wrong in ("orders:", "orders:a", "orders:-1", "orders:1,,2", "orders:99999999999"):
        with pytest.raises(ConfigError, match="must list partitions by number"):
            parse_topic(wrong)
    for wrong in ("", "or/ders", "..", ":1"):
        with pytest.raises(ConfigError, match="is invalid; Kafka allows"):
            parse_topic(wrong)


def test_only_existing_partitions_are_selected() -> None:
    existing = {"a": (0, 1, 2), "b": (0,)}
    assert select_partitions(["b", "a:2", "a:0,2"], existing) == [
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 0),
    ]
    with pytest.raises(UnknownTopicOrPartition, match=r"a\[3\]"):
        select_partitions(["a:3"], existing)
    with pytest.raises(UnknownTopicOrPartition, match="topic 'c'"):
        select_partitions(["c"], existing)
