"""Encoded subscriptions and assignments. Tests of the assignors compare them with Java."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.errors import ConfigError, MalformedConsumerProtocol
from asyncconsumer.protocol.subscription_codec import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeStickyUserData,
    StickyUserData,
)
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=("a", "b"),
    user_data=b"\x01\x02",
    owned_partitions=(TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("b", 1)),
    generation_id=5,
    rack_id="north",
)
ASSIGNMENT = ConsumerProtocolAssignment((TopicPartition("z", 3), TopicPartition("a", 1)), b"")
STICKY = StickyUserData((TopicPartition("z", 3),), 9)
COOPERATIVE = CooperativeStickyUserData(9)
READERS = (
    ConsumerProtocolSubscription.decode,
    ConsumerProtocolAssignment.decode,
    StickyUserData.decode,
    CooperativeStickyUserData.decode,
)


def test_each_version_keeps_its_own_fields() -> None:
    retained = [ConsumerProtocolSubscription.decode(SUBSCRIPTION.encode(n)) for n in range(4)]
    topics, user_data, owned, generation, rack = (
        SUBSCRIPTION.topics,
        SUBSCRIPTION.user_data,
        SUBSCRIPTION.owned_partitions,
        SUBSCRIPTION.generation_id,
        SUBSCRIPTION.rack_id,
    )
    assert retained == [
        ConsumerProtocolSubscription(topics, user_data),
        ConsumerProtocolSubscription(topics, user_data, owned),
        ConsumerProtocolSubscription(topics, user_data, owned, generation),
        ConsumerProtocolSubscription(topics, user_data, owned, generation, rack),
    ]
    assert SUBSCRIPTION.encode() == SUBSCRIPTION.encode(3)
    for version in range(4):
        assert ConsumerProtocolAssignment.decode(ASSIGNMENT.encode(version)) == ASSIGNMENT


def test_user_data_with_and_without_a_generation_is_decoded() -> None:
    assert StickyUserData.decode(STICKY.encode()) == STICKY
    older = STICKY._replace(generation=None)
    assert StickyUserData.decode(older.encode()) == older
    assert CooperativeStickyUserData.decode(COOPERATIVE.encode()) == COOPERATIVE


def test_the_known_fields_of_a_newer_version_are_decoded() -> None:
    newer = b"\x00\x09" + SUBSCRIPTION.encode()[2:] + b"what comes later"
    assert ConsumerProtocolSubscription.decode(newer) == SUBSCRIPTION
    assert ConsumerProtocolAssignment.decode(b"\x00\x09" + ASSIGNMENT.encode()[2:]) == ASSIGNMENT


def test_an_unknown_version_is_not_encoded() -> None:
    for version in (-1, 4):
        with pytest.raises(ConfigError, match=f"has versions 0 to 3: {version}"):
            SUBSCRIPTION.encode(version)
        with pytest.raises(ConfigError, match=f"has versions 0 to 3: {version}"):
            ASSIGNMENT.encode(version)
    with pytest.raises(ConfigError, match="rack_id of 32768 bytes is too long"):
        ConsumerProtocolSubscription((), rack_id="r" * 2**15).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "malformed subscription at byte 0: version needs 2 bytes, 0 are left"),
        ("ffff", "at byte 2: its version is -1"),
        ("0000 ffffffff", "at byte 6: topics has -1 entries"),
        ("0000 7fffffff 0000", "at byte 6: topics has 2147483647 entries in 2 bytes"),
        ("0000 00000001 ffff", "a topic is null"),
        ("0000 00000001 0005 6161", "a topic needs 5 bytes, 2 are left"),
        ("0000 00000001 0002 c328", "a topic is not UTF-8: invalid continuation byte"),
        ("0000 00000000 00000007 00", "user_data needs 7 bytes, 1 are left"),
        ("0001 00000000 ffffffff 00000001 0001 74 00000009", "owned_partitions of 't' has 9 en"),
        ("0001 00000000 ffffffff 00000001 ffff 00000000", "a topic of owned_partitions is null"),
        ("0002 00000000 ffffffff 00000000 0000", "generation_id needs 4 bytes, 2 are left"),
        ("0003 00000000 ffffffff 00000000 00000001", "rack_id needs 2 bytes, 0 are left"),
    ],
)
def test_the_malformed_field_is_reported(data: str, reason: str) -> None:
    with pytest.raises(MalformedConsumerProtocol) as caught:
        ConsumerProtocolSubscription.decode(bytes.fromhex(data))
    assert reason in str(caught.value)
    assert "does not follow Kafka's consumer protocol" in str(caught.value)


def test_the_error_names_the_kind_of_the_malformed_data() -> None:
    for read, what in zip(
        READERS,
        (
            "subscription",
            "assignment",
            "user data of the sticky assignor",
            "user data of the cooperative-sticky assignor",
        ),
        strict=True,
    ):
        with pytest.raises(MalformedConsumerProtocol, match=f"malformed {what} at byte 0"):
            read(b"\x00")


@given(data=st.binary(max_size=60), version=st.integers(0, 5))
def test_any_bytes_are_decoded_or_raise_a_typed_error(data: bytes, version: int) -> None:
    for read in READERS:
        for start in (b"", bytes((0, version))):
            with suppress(MalformedConsumerProtocol):
                read(start + data)


def test_truncated_bytes_are_refused() -> None:
    for whole, read in (
        (SUBSCRIPTION.encode(), ConsumerProtocolSubscription.decode),
        (ASSIGNMENT.encode(), ConsumerProtocolAssignment.decode),
        (STICKY._replace(generation=None).encode(), StickyUserData.decode),
        (COOPERATIVE.encode(), CooperativeStickyUserData.decode),
    ):
        for length in range(len(whole)):
            with pytest.raises(MalformedConsumerProtocol):
                read(whole[:length])
