"""Misuse of the API: the error is raised at the call and ends nothing else."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer import ConfigError, Consumer, OffsetAndTimestamp, TopicPartition
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import environment, make_consumer

pytestmark = pytest.mark.fast

A = TopicPartition("t", 0)


@asynccontextmanager
async def opened() -> AsyncIterator[Consumer[Any, Any]]:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 10)
        async with make_consumer(cluster) as consumer:
            await consumer.wait_assigned()
            yield consumer


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partitions": ["t"]}, "'t' is not a partition"),
        ({"partitions": A}, "not a list of partitions"),
        ({"partitions": [("t", "0")]}, "not a partition"),
        ({"partitions": [("t", True)]}, "not a partition"),
        ({"partitions": 5}, "not a list of partitions"),
        ({"pattern": 5}, "not a regular expression"),
        ({"topics": ("t",), "client_id": 5}, "`client_id` must be a string, got 5"),
        ({"topics": ("t",), "client_rack": 5}, "`client_rack` must be a string, got 5"),
        ({"topics": ("t",), "offsets": 5}, "an OffsetStore needs"),
        ({"topics": ("t",), "listener": 5}, "not a rebalance listener"),
        ({"topics": ("t",), "interceptors": 5}, "must be a list of interceptors, got 5"),
        ({"topics": ("t",), "interceptors": [5]}, "not an interceptor"),
    ],
)
def test_invalid_arguments_are_refused_by_the_constructor(
    options: dict[str, Any], words: str
) -> None:
    topics = options.pop("topics", ())
    with pytest.raises(ConfigError, match=words):
        Consumer(*topics, bootstrap_servers="k:9092", group_id="g", **options)


@simulated([1])
async def test_plain_pairs_are_accepted_as_partitions() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 1)
        plain: Any = [("t", 0)]
        consumer = environment(cluster).run(
            Consumer,
            partitions=plain,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
        )
        async with consumer:
            assert (await anext(aiter(consumer))).offset == 0
            assert await consumer.end_offsets(plain) == {A: 1}
            assert await consumer.offsets_for_times(dict.fromkeys(plain, 0)) == {
                A: OffsetAndTimestamp(0, 1_700_000_000_000)
            }


@simulated([1])
@pytest.mark.parametrize("offset", [5.0, 2**63, "5", None, True, -1])
async def test_a_seek_to_an_invalid_offset_is_refused_and_has_no_effect(offset: Any) -> None:
    async with opened() as consumer:
        with pytest.raises(ConfigError, match="whole number from 0 on"):
            consumer.seek(A, offset)
        assert (await anext(aiter(consumer))).offset == 0


WRONG: dict[str, Callable[[Any], Any]] = {
    "commit(5)": lambda consumer: consumer.commit(5),
    "commit({'t': 5})": lambda consumer: consumer.commit({"t": 5}),
    "end_offsets(A)": lambda consumer: consumer.end_offsets(A),
    "beginning_offsets(['t'])": lambda consumer: consumer.beginning_offsets(["t"]),
    "offsets_for_times({'t': 5})": lambda consumer: consumer.offsets_for_times({"t": 5}),
    "committed('t')": lambda consumer: consumer.committed("t"),
    "assign(['t'])": lambda consumer: consumer.assign(["t"]),
}


@simulated([1])
@pytest.mark.parametrize("call", WRONG)
async def test_values_that_are_no_partitions_are_refused(call: str) -> None:
    async with opened() as consumer:
        with pytest.raises(ConfigError, match=r"partition"):
            await WRONG[call](consumer)


@simulated([1])
async def test_listen_refuses_a_listener_without_callbacks() -> None:
    async with opened() as consumer:
        with pytest.raises(ConfigError, match="not a rebalance listener"):
            consumer.listen(object())
