"""Topics that do not exist are told by health and the log, and created only if that is wanted."""

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.consumer.health import HealthState
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer import real
from tests.consumer.on_fakes import consumer, coordinating
from tests.helpers import until


@simulated([1])
@pytest.mark.fast
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
        async with consumer(cluster, ("t", "tpyo"), **options) as one:
            await one.wait_assigned()
            for _ in range(20):  # of a minute
                health = one.health()
                assert (health.ready, health.live) == (False, True)
                assert health.state is HealthState.STALLED
                assert "'tpyo'" in (health.reason or "")
                await asyncio.sleep(3)
            warnings = [r.message for r in caplog.records if "tpyo" in r.message]
            assert 1 <= len(warnings) <= 2
            cluster.add_topic("tpyo", 1)
            await until(lambda: one.health().ready)
            await until(lambda: len(one.assignment) == 2)


@simulated([1])
@pytest.mark.fast
async def test_health_names_the_topic_of_a_partition_that_does_not_exist() -> None:
    async with (
        GroupCluster(Random(1)) as cluster,
        consumer(cluster, (), partitions=[TopicPartition("tpyo", 0)]) as one,
    ):
        health = one.health()
        assert not health.ready
        assert "tpyo" in (health.reason or "")


@simulated([1])
@pytest.mark.fast
async def test_a_pattern_that_matches_only_the_beginning_of_names_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("orders-eu", 1)
        async with consumer(cluster, (), pattern="^orders") as one:
            assert "must match the whole name" in caplog.text
            assert "'^orders.*' matches all of it" in caplog.text
            await until(lambda: one.health().state is HealthState.IDLE)
            assert "^orders" in (one.health().reason or "")
            assert one.subscription() == frozenset()
            await one.subscribe(pattern="^orders.*")
            assert await one.wait_assigned() == {TopicPartition("orders-eu", 0)}
            assert one.subscription() == {"orders-eu"}


async def test_a_topic_is_created_only_if_that_is_allowed(kafka: KafkaHandle) -> None:
    name = f"{await kafka.topic()}-created"
    async with real.consumer(kafka, name, group_id=kafka.group()) as one:
        assert await one.wait_assigned() == frozenset()
        assert name not in await one.topics()
    async with real.consumer(
        kafka, name, group_id=kafka.group(), allow_auto_create_topics=True
    ) as one:
        await until(lambda: one.assignment == {TopicPartition(name, 0)})
        await until(lambda: one.health().ready)
        assert name in await one.topics()
