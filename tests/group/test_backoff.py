"""Backoff with a coordinator that ends each generation at once, and with failing brokers."""

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from asyncconsumer.errors import (
    FencedMemberEpoch,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from asyncconsumer.protocol.classic_group import HEARTBEAT, JOIN_GROUP
from asyncconsumer.protocol.consumer_group import CONSUMER_GROUP_HEARTBEAT
from asyncconsumer.testing.fake_kafka import HANDLERS, FakeCluster
from asyncconsumer.testing.fake_kafka.broker import Handler, Request
from asyncconsumer.testing.fake_kafka.consumer_groups import ConsumerGroups
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.fake_kafka.tables import handler
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast


class Refusing(GroupCluster):
    """A cluster that answers every heartbeat with an error, and counts joins."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.joins = 0
        super().__init__(Random(1), brokers=1)

    def _handlers(self) -> dict[int, Handler]:
        handlers = super()._handlers()
        join = handlers[JOIN_GROUP.key]

        def count(request: Request) -> None:
            self.joins += 1
            join.answer(request)

        return {
            **handlers,
            JOIN_GROUP.key: join._replace(answer=count),
            HEARTBEAT.key: handler(
                HEARTBEAT, lambda _, __: {"throttle_time_ms": 0, "error_code": self.code}
            ),
        }


@pytest.mark.parametrize("error", [IllegalGeneration, RebalanceInProgress])
def test_generations_that_end_immediately_are_joined_with_a_backoff(
    error: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @simulated(range(3))
    async def run() -> None:
        caplog.clear()
        async with Refusing(error.code) as cluster:
            cluster.add_topic("t", 3)
            async with make_consumer(cluster) as consumer:
                await asyncio.sleep(60)
                joins, cluster.code = cluster.joins, 0
                await asyncio.sleep(10)
                assert consumer.assignment  # the member continues after the errors end
            assert 10 < joins < 120
            assert len(caplog.records) < 100

    run()


@pytest.mark.parametrize("error", [MemberIdRequired, UnknownMemberId, RebalanceInProgress])
@simulated(range(3))
async def test_refused_joins_are_repeated_with_a_backoff(
    error: type[Any],
) -> None:
    async with GroupCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", 3)
        cluster.fail_next(JOIN_GROUP.key, error.code, times=1000)
        async with make_consumer(cluster) as consumer:
            await asyncio.sleep(30)
            assert 10 < cluster.brokers[1].requests[JOIN_GROUP.key] < 60
            cluster.forget_troubles()
            await consumer.wait_assigned()


@simulated(range(3))
async def test_refused_heartbeats_of_kip848_are_repeated_with_a_backoff() -> None:
    groups, asked = ConsumerGroups(Random(1), session_timeout=10.0), 0
    heartbeat = groups.handlers[CONSUMER_GROUP_HEARTBEAT.key]
    fence = handler(CONSUMER_GROUP_HEARTBEAT, lambda _, __: REFUSED)

    def every_second(request: Request) -> None:
        nonlocal asked
        asked += 1
        (heartbeat if asked % 2 else fence).answer(request)

    reported = {**HANDLERS, **groups.handlers}
    reported[CONSUMER_GROUP_HEARTBEAT.key] = heartbeat._replace(answer=every_second)
    async with FakeCluster(Random(1), brokers=1, handlers=reported) as cluster:
        cluster.add_topic("t", 3)
        async with make_consumer(cluster, group_protocol="consumer"):
            await asyncio.sleep(60)
            assert 10 < asked < 240
        groups.close()


REFUSED: Any = {
    "throttle_time_ms": 0,
    "error_code": FencedMemberEpoch.code,
    "error_message": "fenced",
    "member_id": "",
    "member_epoch": 0,
    "heartbeat_interval_ms": 1000,
    "assignment": None,
}
