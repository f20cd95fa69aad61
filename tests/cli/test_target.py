"""`--to` and `--topic` of `groups reset`: what they mean, and what means nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer import EARLIEST, LATEST, ConfigError, TopicPartition
from asyncconsumer.cli.groups.target import ResetTarget, chosen, parse_target, parse_topic
from asyncconsumer.errors import UnknownTopicOrPartition

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", ResetTarget(moment=EARLIEST)),
        ("latest", ResetTarget(moment=LATEST)),
        ("0", ResetTarget(offset=0)),
        ("9223372036854775807", ResetTarget(offset=2**63 - 1)),
        ("-5", ResetTarget(by=-5)),
        ("+5", ResetTarget(by=5)),
        ("2024-05-31T12:00:00Z", ResetTarget(moment=1717156800000)),
        ("2024-05-31T12:00:00.5+02:00", ResetTarget(moment=1717149600500)),
        ("1901-01-01T00:00:00Z", ResetTarget(moment=0)),
    ],
)
def test_where_to(text: str, target: ResetTarget) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("soon", "give earliest, latest, an offset"),
        ("", "give earliest"),
        ("--5", "give earliest"),
        ("1.5", "give earliest"),
        ("9223372036854775808", "no offset is as large"),
        ("2024-05-31T12:00:00", "a time needs its zone"),
    ],
)
def test_where_to_that_means_nothing(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_target(text)


@given(st.text())
def test_any_text_is_a_target_or_an_error(text: str) -> None:
    try:
        target = parse_target(text)
    except ConfigError:
        return
    assert [target.offset, target.by, target.moment].count(None) == 2


def test_topics_and_their_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:3,0, 3") == ("orders", [0, 3])
    for wrong in ("orders:", "orders:a", "orders:-1", "orders:1,,2", "orders:99999999999"):
        with pytest.raises(ConfigError, match="name partitions by number"):
            parse_topic(wrong)
    for wrong in ("", "or/ders", "..", ":1"):
        with pytest.raises(ConfigError, match="is no name that Kafka takes"):
            parse_topic(wrong)


def test_only_what_is_there_is_chosen() -> None:
    there = {"a": (0, 1, 2), "b": (0,)}
    assert chosen(["b", "a:2", "a:0,2"], there) == [
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 0),
    ]
    with pytest.raises(UnknownTopicOrPartition, match=r"a\[3\]"):
        chosen(["a:3"], there)
    with pytest.raises(UnknownTopicOrPartition, match="topic 'c'"):
        chosen(["c"], there)
