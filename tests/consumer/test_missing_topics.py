"""Topics that do not exist: health and logs name them."""

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.consumer.health import HealthState
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import coordinating, make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast


@simulated([1])
@pytest.mark.parametrize("protocol", ["classic", "consumer", None])
async def test_health_names_a_topic_that_does_not_exist(
    protocol: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "asyncconsumer.consumer.topic_check")
    options: dict[str, Any] = {"group_protocol": protocol}
    if protocol is None:
        options = {"group_id": None}
    async with coordinating(protocol or "classic") as cluster:
        cluster.add_topic("t", 1)
        async with make_consumer(cluster, ("t", "tpyo"), **options) as consumer:
            await consumer.wait_assigned()
            for _ in range(20):  # of a minute
                health = consumer.health()
                assert (health.ready, health.live) == (False, True)
                assert health.state is HealthState.STALLED
                assert "'tpyo'" in (health.reason or "")
                await asyncio.sleep(3)
            warnings = [r.message for r in caplog.records if "tpyo" in r.message]
            assert 1 <= len(warnings) <= 2
            cluster.add_topic("tpyo", 1)
            await until(lambda: consumer.health().ready)
            await until(lambda: len(consumer.assignment) == 2)


@simulated([1])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_health_names_a_missing_topic_before_the_first_assignment(protocol: str) -> None:
    async with (
        coordinating(protocol) as cluster,
        make_consumer(cluster, ("tpyo",), group_protocol=protocol) as consumer,
    ):
        health = consumer.health()
        assert (health.state, health.ready) == (HealthState.REBALANCING, False)
        assert "'tpyo'" in (health.reason or "")


@simulated([1])
async def test_health_names_the_topic_of_a_partition_that_does_not_exist() -> None:
    async with (
        GroupCluster(Random(1)) as cluster,
        make_consumer(cluster, (), partitions=[TopicPartition("tpyo", 0)]) as consumer,
    ):
        health = consumer.health()
        assert not health.ready
        assert "tpyo" in (health.reason or "")


@simulated([1])
async def test_a_pattern_that_matches_only_the_beginning_of_names_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("orders-eu", 1)
        async with make_consumer(cluster, (), pattern="^orders") as consumer:
            assert "must match the whole name" in caplog.text
            assert "use '^orders.*'" in caplog.text
            await until(lambda: consumer.health().state is HealthState.IDLE)
            assert "^orders" in (consumer.health().reason or "")
            assert consumer.subscription() == frozenset()
            await consumer.subscribe(pattern="^orders.*")
            assert await consumer.wait_assigned() == {TopicPartition("orders-eu", 0)}
            assert consumer.subscription() == {"orders-eu"}
