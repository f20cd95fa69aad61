"""What users get wrong is told where they do it, in words, and ends nothing else."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer import ConfigError, Consumer, OffsetAndTimestamp, TopicPartition
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.on_fakes import consumer, environment

pytestmark = pytest.mark.fast

A = TopicPartition("t", 0)


@asynccontextmanager
async def opened() -> AsyncIterator[Consumer[Any, Any]]:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 10)
        async with consumer(cluster) as one:
            await one.wait_assigned()
            yield one


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partitions": ["t"]}, "'t' is no partition"),
        ({"partitions": A}, "no list of partitions"),
        ({"partitions": [("t", "0")]}, "no partition"),
        ({"partitions": [("t", True)]}, "no partition"),
        ({"partitions": 5}, "no list of partitions"),
        ({"pattern": 5}, "no regular expression"),
        ({"topics": ("t",), "client_id": 5}, "client_id must be a text, got 5"),
        ({"topics": ("t",), "client_rack": 5}, "client_rack must be a text, got 5"),
        ({"topics": ("t",), "offsets": 5}, "no OffsetStore"),
        ({"topics": ("t",), "listener": 5}, "no listener"),
        ({"topics": ("t",), "interceptors": 5}, "list of them"),
        ({"topics": ("t",), "interceptors": [5]}, "no interceptor"),
    ],
)
def test_what_cannot_be_used_is_refused_when_it_is_given(given: dict[str, Any], words: str) -> None:
    topics = given.pop("topics", ())
    with pytest.raises(ConfigError, match=words):
        Consumer(*topics, bootstrap_servers="k:9092", group_id="g", **given)


@simulated([1])
async def test_plain_pairs_are_partitions_as_well() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 1)
        plain: Any = [("t", 0)]
        one = Consumer(
            partitions=plain,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            environment=environment(cluster),
        )
        async with one:
            assert (await anext(aiter(one))).offset == 0
            assert await one.end_offsets(plain) == {A: 1}
            assert await one.offsets_for_times(dict.fromkeys(plain, 0)) == {
                A: OffsetAndTimestamp(0, 1_700_000_000_000)
            }


@simulated([1])
@pytest.mark.parametrize("offset", [5.0, 2**63, "5", None, True, -1])
async def test_a_seek_to_what_is_no_offset_is_refused_and_ends_nothing(offset: Any) -> None:
    async with opened() as one:
        with pytest.raises(ConfigError, match="whole number from 0 on"):
            one.seek(A, offset)
        assert (await anext(aiter(one))).offset == 0


WRONG: dict[str, Callable[[Any], Any]] = {
    "commit(5)": lambda one: one.commit(5),
    "commit({'t': 5})": lambda one: one.commit({"t": 5}),
    "end_offsets(A)": lambda one: one.end_offsets(A),
    "beginning_offsets(['t'])": lambda one: one.beginning_offsets(["t"]),
    "offsets_for_times({'t': 5})": lambda one: one.offsets_for_times({"t": 5}),
    "committed('t')": lambda one: one.committed("t"),
    "assign(['t'])": lambda one: one.assign(["t"]),
}


@simulated([1])
@pytest.mark.parametrize("call", WRONG)
async def test_what_is_no_partition_is_refused(call: str) -> None:
    async with opened() as one:
        with pytest.raises(ConfigError, match=r"partition"):
            await WRONG[call](one)


@simulated([1])
async def test_a_listener_that_can_be_told_nothing_is_refused_later_too() -> None:
    async with opened() as one:
        with pytest.raises(ConfigError, match="no listener"):
            one.listen(object())
