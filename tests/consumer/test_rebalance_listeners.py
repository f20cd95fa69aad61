"""Rebalance listeners that are added, replaced and removed, and their errors."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from random import Random

import pytest

from asyncconsumer import ConfigError, ConsumerRebalanceListener, TopicPartition
from asyncconsumer.errors import ListenerFailed
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast


class RecordingListener(ConsumerRebalanceListener):
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.assigned: list[set[TopicPartition]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.assigned.append(set(partitions))


class FailingListener(ConsumerRebalanceListener):
    """A listener that raises `error` in the callback with the given name."""

    def __init__(self, callback: str, error: Exception) -> None:
        self._error = error
        setattr(self, callback, self._fail)

    async def _fail(self, partitions: Collection[TopicPartition]) -> None:
        raise self._error


@simulated([1])
@pytest.mark.parametrize("way", ["records", "batches", "partitions", "wait_assigned"])
async def test_a_listener_error_names_the_callback_and_has_its_cause(way: str) -> None:
    error = OSError("disk full")
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        listener = FailingListener("on_partitions_assigned", error)
        async with make_consumer(cluster, listener=listener) as consumer:
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "records": lambda: anext(aiter(consumer)),
                "batches": lambda: anext(consumer.batches()),
                "partitions": lambda: anext(consumer.partitions()),
                "wait_assigned": consumer.wait_assigned,
            }
            with pytest.raises(
                ListenerFailed, match=r"on_partitions_assigned.*disk full"
            ) as excinfo:
                await ways[way]()
            assert excinfo.value.__cause__ is error


@simulated([1])
async def test_a_listener_error_in_a_revocation_names_the_listener() -> None:
    error = ValueError("a mistake")
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.add_topic("u", 1)
        listener = FailingListener("on_partitions_revoked", error)
        async with make_consumer(cluster, listener=listener) as consumer:
            await consumer.wait_assigned()
            await consumer.subscribe("u")
            with pytest.raises(
                ListenerFailed, match=r"FailingListener\.on_partitions_revoked"
            ) as e:
                await anext(aiter(consumer))
            assert e.value.__cause__ is error


@simulated([1])
async def test_listeners_are_replaced_by_subscribe_and_removed() -> None:
    first, added, second = RecordingListener(), RecordingListener(), RecordingListener()
    t, u = TopicPartition("t", 0), TopicPartition("u", 0)
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.add_topic("u", 1)
        async with make_consumer(cluster, listener=first) as consumer, asyncio.timeout(60):
            consumer.listen(added)
            await consumer.wait_assigned()
            await consumer.subscribe("u", listener=second)
            await consumer.wait_assigned()
            assert (first.assigned[-1], added.assigned[-1], second.assigned) == ({t}, {u}, [{u}])
            consumer.remove_listener(added)
            await consumer.subscribe("t")
            await consumer.wait_assigned()
            assert (added.assigned[-1], second.assigned[-1]) == ({u}, {t})
            with pytest.raises(ConfigError, match="not a listener of this consumer"):
                consumer.remove_listener(added)
