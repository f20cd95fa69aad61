"""The watchdog thread beside a blocked event loop."""

import time
from collections.abc import Callable

import pytest
from aiokafka.protocol.api import Request
from aiokafka.protocol.coordination import FindCoordinatorRequest

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.consumer.watchdog import Watchdog
from asyncconsumer.protocol.classic_group import HeartbeatRequest
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import Address

SECONDS = 4.0


class Member:
    """A member that counts its heartbeats."""

    def __init__(self, kafka: KafkaHandle, message: Request) -> None:
        host, port = kafka.bootstrap_servers.split(":")
        self.heartbeat = Address(host, int(port)), message
        self.heartbeat_times: list[float] = []

    def heartbeat_from_thread(self, sent_at: float) -> None:
        self.heartbeat_times.append(sent_at)


async def watched(kafka: KafkaHandle, message: Request, work: Callable[[], None]) -> Member:
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    member = Member(kafka, message)
    async with Watchdog(member, config, interval=0.3, max_blocked=3600) as watchdog:
        work()
    assert watchdog.blockages == (work is not nothing)
    return member


def nothing() -> None:
    """Do nothing, so that no task is blocked."""


def block() -> None:
    time.sleep(SECONDS)


async def test_heartbeats_of_the_thread_have_the_time_when_they_were_sent(
    kafka: KafkaHandle,
) -> None:
    before = time.monotonic()
    member = await watched(kafka, FindCoordinatorRequest(kafka.group(), 0), block)
    assert len(member.heartbeat_times) > 1
    assert all(before < time < before + SECONDS + 1 for time in member.heartbeat_times)


async def test_the_thread_sends_no_heartbeat_while_the_loop_runs(kafka: KafkaHandle) -> None:
    member = await watched(kafka, FindCoordinatorRequest(kafka.group(), 0), nothing)
    assert not member.heartbeat_times


async def test_a_heartbeat_with_an_error_response_does_not_count(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    message = HeartbeatRequest(kafka.group(), 3, "nobody")
    member = await watched(kafka, message, block)
    assert not member.heartbeat_times
    assert "the session may end" in caplog.text
