"""Connections by address and traffic: shared, replaced, and opened with a backoff."""

import asyncio
import itertools
import logging
from random import Random
from typing import Any

import pytest

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    ConsumerError,
    HostNotAllowed,
    WrongCredentials,
)
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Address
from tests.support.fake_connections import FakeOpener, K, unreachable

pytestmark = pytest.mark.fast

ELSEWHERE = Address("elsewhere", 9092)


def make(opener: FakeOpener, **options: Any) -> BrokerPool:
    config = ConnectionConfig(bootstrap_servers="k:9092", **options)
    return BrokerPool(config, randomness=Random(1), opener=opener)


async def request_forever(brokers: BrokerPool, traffic: Traffic) -> None:
    """Repeat a request immediately, with any response."""
    while True:
        try:
            connection = await brokers.connection(K, traffic)
            await connection.request(MetadataRequest([]))
        except ConsumerError:
            await asyncio.sleep(0)


async def request_for(seconds: float, brokers: BrokerPool) -> None:
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(request_forever(brokers, traffic)) for traffic in Traffic]
        await asyncio.sleep(seconds)
        for task in asking:
            task.cancel()


def test_the_backoff_doubles_up_to_its_limit_with_jitter() -> None:
    waits = list(itertools.islice(backoff(0.1, 1.0, Random(1)), 8))
    for wait, full in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert 0.8 * full <= wait <= full
    assert len(set(waits[4:])) == 4
    assert waits != list(itertools.islice(backoff(0.1, 1.0, Random(2)), 8))


@simulated(seeds=range(20))
async def test_a_connection_is_opened_once_and_kept() -> None:
    opener = FakeOpener()
    opener.takes = 1
    async with make(opener) as brokers:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(brokers.connection(K, Traffic.FETCH)) for _ in range(5)]
        assert len({task.result() for task in asked}) == 1
        assert await brokers.connection(K, Traffic.FETCH) is asked[0].result()
    assert len(opener.tries) == 1


@simulated(seeds=range(3))
async def test_connections_to_hosts_that_are_not_allowed_are_refused() -> None:
    opener = FakeOpener()
    async with make(opener, allowed_hosts="k,10.0.0.0/8") as brokers:
        await brokers.connection(K, Traffic.FETCH)
        for host in ("elsewhere", "169.254.169.254"):
            with pytest.raises(HostNotAllowed, match=rf"{host}:9092: .* `allowed_hosts`") as caught:
                await brokers.connection(Address(host, 9092), Traffic.CONTROL)
            assert not caught.value.retriable
    assert [address for _, address in opener.tries] == [K]


@simulated(seeds=range(20))
async def test_each_traffic_and_address_has_its_own_connection() -> None:
    opener = FakeOpener()
    async with make(opener) as brokers:
        results = {
            await brokers.connection(address, traffic)
            for address in (K, ELSEWHERE)
            for traffic in Traffic
        }
    assert len(results) == 2 * len(Traffic)
    assert asyncio.get_running_loop().time() == 0, "a healthy node has no backoff"


@simulated(seeds=range(20))
async def test_a_cancelled_caller_does_not_cancel_a_shared_opening() -> None:
    opener = FakeOpener()
    opener.takes = 1
    async with make(opener) as brokers, asyncio.TaskGroup() as group:
        cancelled = group.create_task(brokers.connection(K, Traffic.FETCH))
        waiting = group.create_task(brokers.connection(K, Traffic.FETCH))
        await asyncio.sleep(0.5)
        cancelled.cancel()
        assert (await waiting).usable
    assert len(opener.tries) == 1


@simulated(seeds=range(20))
async def test_a_failed_opening_fails_all_its_callers() -> None:
    opener = FakeOpener()
    opener.takes, opener.fails = 1, unreachable
    async with make(opener) as brokers, asyncio.TaskGroup() as group:
        asked = [group.create_task(refused(brokers)) for _ in range(3)]
    errors = [task.result() for task in asked]
    assert len(opener.tries) == 1
    assert len({id(error) for error in errors}) == 3


async def refused(brokers: BrokerPool) -> ConsumerError:
    with pytest.raises(ConsumerError, match="connection refused") as caught:
        await brokers.connection(K, Traffic.FETCH)
    return caught.value


@simulated(seeds=range(20))
async def test_a_dead_node_is_retried_with_a_growing_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opener = FakeOpener()
    opener.fails = unreachable
    async with make(opener, reconnect_backoff_max_ms=10_000) as brokers:
        await request_for(600, brokers)
    assert opener.busiest(0.999) <= 2
    assert opener.busiest(60.0) <= 30
    assert len(opener.tries) > 60, "the node is still tried at the end"
    assert len(caplog.records) > 20


@simulated(seeds=range(20))
async def test_a_node_is_tried_at_most_twice_a_second() -> None:
    opener = FakeOpener()
    opener.fails = unreachable
    async with make(opener, reconnect_backoff_ms=0, reconnect_backoff_max_ms=1) as brokers:
        await request_for(60, brokers)
    assert 100 <= len(opener.tries) <= 121
    assert opener.busiest(0.999) <= 2


@pytest.mark.parametrize("short_waits", [False, True])
def test_errors_of_a_node_are_logged_at_most_ten_times_a_minute(
    caplog: pytest.LogCaptureFixture, short_waits: bool
) -> None:
    options = {"reconnect_backoff_ms": 0, "reconnect_backoff_max_ms": 1} if short_waits else {}

    @simulated(seeds=[0])
    async def check() -> None:
        opener = FakeOpener()
        opener.fails = unreachable
        async with make(opener, **options) as brokers:
            await request_for(59.9, brokers)

    check()
    assert 8 <= len(caplog.records) <= 10
    assert all(
        "failed to connect: k:9092: connection refused" in record.getMessage()
        for record in caplog.records
    )


@simulated(seeds=[0])  # log lines add up over seeds
async def test_suppressed_log_lines_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLogger(logging.getLogger("here"))
    for number in range(25):
        log.warning("trouble %d", number)
    await asyncio.sleep(60)
    log.warning("trouble again")
    log.warning("and again")
    messages = [record.getMessage() for record in caplog.records]
    assert messages[9:] == ["trouble 9", "trouble again (15 lines like this left out)", "and again"]


async def cut_forever(opener: FakeOpener) -> None:
    """Cut every connection."""
    while True:
        await asyncio.sleep(0.01)
        for wire in opener.wires:
            wire.connection.eof_received()
        opener.wires.clear()


@simulated(seeds=[0])  # log lines add up over seeds
async def test_a_flapping_node_is_retried_with_a_growing_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opener = FakeOpener()
    async with (
        make(opener, reconnect_backoff_max_ms=10_000) as brokers,
        asyncio.TaskGroup() as group,
    ):
        cutting = group.create_task(cut_forever(opener))
        await request_for(59.9, brokers)
        cutting.cancel()
    assert 10 <= len(opener.tries) <= 15 * len(Traffic)
    assert len(caplog.records) <= 10


@simulated(seeds=range(20))
async def test_a_flapping_connection_is_opened_at_most_twice_a_second() -> None:
    opener = FakeOpener()
    async with (
        make(opener, reconnect_backoff_ms=0, reconnect_backoff_max_ms=1) as brokers,
        asyncio.TaskGroup() as group,
    ):
        flapping = [cut_forever(opener), request_forever(brokers, Traffic.FETCH)]
        tasks = [group.create_task(work) for work in flapping]
        await asyncio.sleep(60)
        for task in tasks:
            task.cancel()
    assert opener.busiest(0.999) <= 2
    assert len(opener.tries) >= 100


@simulated(seeds=range(20))
async def test_a_healthy_traffic_does_not_reset_the_backoff_of_another() -> None:
    opener = FakeOpener()
    async with make(opener) as brokers:
        await brokers.connection(K, Traffic.FETCH)
        await asyncio.sleep(100)
        for _ in range(10):
            await brokers.connection(K, Traffic.GROUP)
            opener.wires[-1].connection.eof_received()
    assert opener.busiest(0.999) <= 2


@simulated(seeds=range(20))
async def test_a_long_lived_connection_is_replaced_without_backoff() -> None:
    opener = FakeOpener()
    async with make(opener) as brokers:
        loop = asyncio.get_running_loop()
        for _ in range(20):
            opened = [await brokers.connection(K, traffic) for traffic in Traffic]
            await asyncio.sleep(100)
            for wire in opener.wires[-len(opened) :]:
                wire.connection.connection_lost(ConnectionResetError("cut"))
            start = loop.time()
            async with asyncio.TaskGroup() as group:
                for traffic in Traffic:
                    group.create_task(brokers.connection(K, traffic))
            assert loop.time() - start <= 0.1


@simulated(seeds=range(20))
async def test_connections_that_break_together_count_as_one_failure() -> None:
    opener = FakeOpener()
    async with make(opener, reconnect_backoff_ms=1000, reconnect_backoff_max_ms=8000) as brokers:
        loop = asyncio.get_running_loop()
        for traffic in Traffic:
            await brokers.connection(K, traffic)
        await asyncio.sleep(1)
        for wire in opener.wires:
            wire.connection.connection_lost(ConnectionResetError("cut"))
        start = loop.time()
        for traffic in Traffic:  # one after the other, so the second one finds a healthy node
            await brokers.connection(K, traffic)
        assert 0.8 <= loop.time() - start <= 1


@simulated(seeds=range(20))
async def test_a_suspect_broker_is_the_last_choice_for_some_time() -> None:
    async with make(FakeOpener()) as brokers:
        brokers.mark_suspect(K)
        assert brokers.preference_key(K) > brokers.preference_key(ELSEWHERE)
        brokers.clear_suspect(K)
        assert brokers.preference_key(K) == brokers.preference_key(ELSEWHERE)
        brokers.mark_suspect(K)
        await asyncio.sleep(60)
        assert brokers.preference_key(K) == brokers.preference_key(ELSEWHERE)


@simulated(seeds=range(20))
async def test_a_recovered_node_is_connected_within_a_second() -> None:
    opener = FakeOpener()
    opener.fails = unreachable
    async with make(opener) as brokers:
        await request_for(300, brokers)
        opener.fails = lambda address: None
        back = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for traffic in Traffic:
                group.create_task(brokers.connection(K, traffic))
        assert asyncio.get_running_loop().time() - back <= 1
        assert brokers.wait_before(K) == 0


@simulated(seeds=range(20))
async def test_a_refused_login_fails_the_caller_and_causes_a_backoff() -> None:
    opener = FakeOpener()
    opener.fails = lambda address: WrongCredentials(address, "no")
    async with make(opener, reconnect_backoff_ms=4_000, reconnect_backoff_max_ms=4_000) as brokers:
        with pytest.raises(WrongCredentials):
            await brokers.connection(K, Traffic.FETCH)
        assert len(opener.tries) == 1
        assert 3.2 <= brokers.wait_before(K) <= 4
        assert brokers.wait_before(ELSEWHERE) == 0
        with pytest.raises(WrongCredentials):
            await brokers.connection(K, Traffic.CONTROL)
        assert asyncio.get_running_loop().time() >= 3.2


@simulated(seeds=range(20))
async def test_a_closed_idle_connection_is_replaced_silently_without_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opener = FakeOpener()
    async with make(opener) as brokers:
        first = await brokers.connection(K, Traffic.FETCH)
        await first.wait_closed()
        assert isinstance(first.ending, ClosedError)
        start = asyncio.get_running_loop().time()
        assert await brokers.connection(K, Traffic.FETCH) is not first
        assert asyncio.get_running_loop().time() == start
    assert not caplog.records


@simulated(seeds=range(20))
async def test_a_connection_whose_login_expires_is_replaced_and_drained() -> None:
    opener = FakeOpener()
    async with make(opener) as brokers, asyncio.TaskGroup() as group:
        first = await brokers.connection(K, Traffic.CONTROL)
        first.expires = 10
        pending = group.create_task(first.request(MetadataRequest([])))
        await asyncio.sleep(11)
        assert await brokers.connection(K, Traffic.CONTROL) is not first
        opener.wires[0].receive(1, bytes.fromhex("00000000000100000000070100"))
        assert (await pending).controller_id == 7
        await first.wait_closed()


@simulated(seeds=range(20))
async def test_leaving_the_block_closes_connections_and_fails_callers() -> None:
    opener = FakeOpener()
    opener.takes = 1
    brokers = make(opener)
    with pytest.raises(ClosedError, match="not open yet"):
        await brokers.connection(K, Traffic.FETCH)
    async with asyncio.TaskGroup() as group, brokers:
        connection = await brokers.connection(K, Traffic.FETCH)
        waiting = group.create_task(closed_meanwhile(brokers))
        await asyncio.sleep(0.5)
    assert waiting.done()
    assert not waiting.cancelled()
    assert isinstance(connection.ending, ClosedError)
    with pytest.raises(ClosedError, match="block is over"):
        await brokers.connection(K, Traffic.FETCH)
    with pytest.raises(ClosedError, match="opened before"):
        await brokers.__aenter__()


async def closed_meanwhile(brokers: BrokerPool) -> None:
    with pytest.raises(ClosedError, match="closed meanwhile"):
        await brokers.connection(K, Traffic.GROUP)


@simulated(seeds=range(20))
async def test_errors_of_the_block_are_raised_unchanged() -> None:
    with pytest.raises(ConnectionLost):
        await fail(make(FakeOpener()))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stay(make(FakeOpener())))
        await asyncio.sleep(1)
        task.cancel()
    assert task.cancelled()


async def fail(brokers: BrokerPool) -> None:
    async with brokers:
        await brokers.connection(K, Traffic.FETCH)
        raise ConnectionLost(K, "mine")


async def stay(brokers: BrokerPool) -> None:
    async with brokers:
        await brokers.connection(K, Traffic.FETCH)
        await asyncio.sleep(3600)


def raise_unexpected(address: Address) -> ConsumerError | None:
    raise TypeError(address)


@simulated(seeds=range(20))
async def test_an_unexpected_error_of_an_opener_is_raised() -> None:
    opener = FakeOpener()
    opener.fails = raise_unexpected
    with pytest.raises(ExceptionGroup) as caught:
        async with make(opener) as brokers:
            await brokers.connection(K, Traffic.FETCH)
    assert caught.group_contains(TypeError)
    assert not caught.group_contains(ConnectFailed)


@simulated(seeds=range(20))
async def test_many_slots_to_a_dead_node_share_one_attempt() -> None:
    opener = FakeOpener()
    opener.fails = unreachable
    async with make(opener) as brokers:

        async def refused(slot_number: int) -> None:
            with pytest.raises(ConnectFailed):
                await brokers.connection(K, Traffic.FETCH, slot=slot_number)

        async with asyncio.TaskGroup() as group:
            for slot_number in range(50):
                group.create_task(refused(slot_number))
    assert len(opener.tries) == 1


@simulated(seeds=range(20))
async def test_a_slot_closed_during_its_opening_leaves_no_connection() -> None:
    opener = FakeOpener()
    opener.takes = 1.0
    async with make(opener) as brokers:

        async def cut_short() -> None:
            with pytest.raises(ClosedError):
                await brokers.connection(K, Traffic.FETCH, slot=7)

        async with asyncio.TaskGroup() as group:
            group.create_task(cut_short())
            await asyncio.sleep(0.5)
            brokers.close_slot(7)
        await asyncio.sleep(10)
        assert opener.wires == []


@simulated(seeds=range(20))
async def test_another_slot_opens_a_connection_after_the_first_is_closed() -> None:
    opener = FakeOpener()
    opener.takes = 1.0
    async with make(opener) as brokers, asyncio.TaskGroup() as group:

        async def cut_short() -> None:
            with pytest.raises(ClosedError):
                await brokers.connection(K, Traffic.FETCH, slot=1)

        group.create_task(cut_short())
        await asyncio.sleep(0.1)
        other = group.create_task(brokers.connection(K, Traffic.FETCH, slot=2))
        await asyncio.sleep(0.1)
        brokers.close_slot(1)
        assert (await other).usable
