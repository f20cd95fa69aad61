"""The paths of Kafka, and names that must not leave them."""

import pytest

from asyncconsumer.errors import ConfigError
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper import paths
from asyncconsumer.zookeeper.paths import GroupPaths

pytestmark = pytest.mark.fast

HOSTILE = ["", ".", "..", "a/b", "../x", "a\0b", "a\nb", "é", "a∕b", " ", "x" * 250, "x" * 10_000]


def test_paths_are_those_of_kafka() -> None:
    group, where = GroupPaths("g"), TopicPartition("t.1", 7)
    assert [group.root, group.ids, group.owners, group.offsets] == [
        "/consumers/g",
        "/consumers/g/ids",
        "/consumers/g/owners",
        "/consumers/g/offsets",
    ]
    assert group.member("g_host-17-ab") == "/consumers/g/ids/g_host-17-ab"
    assert group.member("g_né ü") == "/consumers/g/ids/g_né ü"
    assert group.owner(where) == "/consumers/g/owners/t.1/7"
    assert group.offset(where) == "/consumers/g/offsets/t.1/7"
    assert paths.topic("x" * 249) == "/brokers/topics/" + "x" * 249
    assert paths.broker(3) == "/brokers/ids/3"


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_that_leave_their_path_are_refused(name: str) -> None:
    group = GroupPaths("g")
    for path in (GroupPaths, paths.topic, group.topic_owners, group.topic_offsets):
        with pytest.raises(ConfigError, match="is invalid; Kafka allows") as caught:
            path(name)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "a\n", "x" * 1025])
def test_member_ids_that_leave_their_path_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a znode"):
        GroupPaths("g").member(name)


@pytest.mark.parametrize("number", [-1, 2**31])
def test_partitions_are_numbers(number: int) -> None:
    with pytest.raises(ConfigError, match="a partition number must be"):
        GroupPaths("g").owner(TopicPartition("t", number))
