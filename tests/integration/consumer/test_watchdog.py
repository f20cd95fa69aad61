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
        self.signs: list[float] = []

    def heartbeat_from_thread(self, sent_at: float) -> None:
        self.signs.append(sent_at)


async def watched(kafka: KafkaHandle, message: Request, work: Callable[[], None]) -> Member:
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    member = Member(kafka, message)
    async with Watchdog(member, config, interval=0.3, max_blocked=3600) as watchdog:
        work()
    assert watchdog.blockages == (work is not nothing)
    return member


def nothing() -> None:
    """Do nothing, because no task is blocked."""


def block() -> None:
    time.sleep(SECONDS)


async def test_heartbeats_count_from_when_they_were_sent(kafka: KafkaHandle) -> None:
    before = time.monotonic()
    member = await watched(kafka, FindCoordinatorRequest(kafka.group(), 0), block)
    assert len(member.signs) > 1
    assert all(before < time < before + SECONDS + 1 for time in member.signs)


async def test_a_loop_that_runs_is_left_alone(kafka: KafkaHandle) -> None:
    member = await watched(kafka, FindCoordinatorRequest(kafka.group(), 0), nothing)
    assert not member.signs


async def test_an_answer_that_is_an_error_is_no_sign_of_life(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    message = HeartbeatRequest(kafka.group(), 3, "nobody")
    member = await watched(kafka, message, block)
    assert not member.signs
    assert "the session may end" in caplog.text
