"""Cluster metadata on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID

import pytest

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    CertificateRefused,
    ClosedError,
    ConnectFailed,
    InvalidTopic,
    NoBrokerAnswered,
    WrongCredentials,
)
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.pool import BrokerOpener, BrokerPool, Traffic
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Address, TopicPartition
from tests.support.fake_connections import FakeOpener, metadata_answer, reachable, unreachable

pytestmark = pytest.mark.fast


A, B, C = Address("a", 1), Address("b", 2), Address("c", 3)
PLACES = {1: A, 2: B, 3: C}


@asynccontextmanager
async def joined(opener: BrokerOpener | None = None, **settings: Any) -> AsyncIterator[Cluster]:
    config = ConnectionConfig(**settings)
    async with (
        BrokerPool(config, randomness=Random(1), opener=opener or open_connection) as brokers,
        Cluster(brokers, randomness=Random(2)) as cluster,
    ):
        yield cluster


# --- simulated clusters ---------------------------------------------------------------------------


class Played(FakeOpener):
    """Brokers 1 to 3 at a:1, b:2 and c:3 with topics t and u, and a record of their requests."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Address, bytes]] = []
        self.silent: set[Address] = set()
        self.places = dict(PLACES)
        self.epoch = 0
        self.answers = self.reply

    def reply(self, address: Address, request: bytes) -> bytes | None:
        self.asked.append((address, request))
        if address in self.silent:
            return None
        topics = {
            name: (UUID(int=1), 0, {0: (2, self.epoch)})
            for name in ("t", "u")
            if b"\x02" + name.encode() in request
        }
        return metadata_answer(self.places, topics)


@simulated(seeds=range(20))
async def test_concurrent_refreshes_are_one_request() -> None:
    played = Played()
    async with joined(played, bootstrap_servers="a:1") as cluster:
        async with asyncio.TaskGroup() as group:
            reported = [group.create_task(cluster.refresh([name])) for name in ("t", "u", "t")]
        assert len(played.asked) == 1
        assert all(task.result() is cluster.metadata for task in reported)
        assert set(cluster.metadata.topics) == {"t", "u"}


@simulated(seeds=range(3))
async def test_topics_that_were_not_requested_are_not_kept() -> None:
    played = Played()
    reported = metadata_answer(PLACES, {name: (None, 0, {}) for name in ("t", "u", "spam")})
    played.answers = lambda address, request: reported
    async with joined(played, bootstrap_servers="a:1") as cluster:
        assert set((await cluster.refresh(["t"])).topics) == {"t"}
        assert set((await cluster.refresh(["u", "missing"])).topics) == {"t", "u"}


@simulated(seeds=range(3))
async def test_topics_that_are_no_longer_requested_are_dropped() -> None:
    played = Played()
    played.answers = lambda address, request: metadata_answer(
        PLACES, {name: (None, 0, {}) for name in ("kept", *(f"t{n}" for n in range(50)))}
    )
    async with joined(played, bootstrap_servers="a:1") as cluster:
        limit = 0
        for n in range(50):
            await cluster.refresh(["kept", f"t{n}"])
            limit = max(limit, len(cluster.metadata.topics))
            await asyncio.sleep(60)
        assert set(cluster.metadata.topics) == {"kept", *(f"t{n}" for n in range(39, 50))}
        assert limit == 12
        assert len(cluster._usage._requested_at) == limit
        await cluster.refresh(["t3"])
        assert "t3" in cluster.metadata.topics, "a dropped topic can be requested again"


@simulated(seeds=range(3))
async def test_brokers_that_are_no_longer_used_are_dropped() -> None:
    opener = FakeOpener()
    config = ConnectionConfig(bootstrap_servers="a:1", connections_max_idle_ms=60_000)
    async with BrokerPool(config, randomness=Random(1), opener=opener) as brokers:
        lasting = await brokers.connection(A, Traffic.CONTROL)
        for n in range(100):
            gone = Address(f"pod-{n}", 9092)
            await brokers.connection(gone, Traffic.FETCH)
            brokers.mark_suspect(gone)
            opener.wires[-1].connection.close()
            opener.fails = unreachable
            with pytest.raises(ConnectFailed):
                await brokers.connection(gone, Traffic.FETCH)
            opener.fails = reachable
            await asyncio.sleep(60)
            # a response is always expected, so that the connection is not idle
            lasting.last_received = asyncio.get_running_loop().time()
        assert await brokers.connection(A, Traffic.CONTROL) is lasting
        assert A in brokers._nodes, "a broker with a connection is kept"
        assert len(brokers._nodes) <= 12
        assert len(brokers._suspects) <= 1


@simulated(seeds=range(3))
@pytest.mark.parametrize("name", ["\ud800", "a" * 2**15])
async def test_an_invalid_topic_name_does_not_affect_other_topics(name: str) -> None:
    played = Played()
    async with joined(played, bootstrap_servers="a:1") as cluster:
        for topics in ([name], ["t", name]):
            with pytest.raises(InvalidTopic):
                await cluster.refresh(topics)
        assert set((await cluster.refresh(["t"])).topics) == {"t"}


@simulated(seeds=range(20))
async def test_a_refresh_returns_metadata_requested_after_its_call() -> None:
    played = Played()
    played.takes = 1
    async with (
        joined(played, bootstrap_servers="a:1") as cluster,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(cluster.refresh(["t"]))
        await asyncio.sleep(0.5)
        late = [group.create_task(cluster.refresh(["t"])) for _ in range(3)]
        assert (await first).leader(TopicPartition("t", 0)).epoch == 0
        played.epoch = 1
        for task in late:
            assert (await task).leader(TopicPartition("t", 0)).epoch == 1
    assert len(played.asked) == 2


@simulated(seeds=range(20))
async def test_a_cancelled_caller_does_not_cancel_a_shared_refresh() -> None:
    played = Played()
    played.takes = 1
    async with (
        joined(played, bootstrap_servers="a:1") as cluster,
        asyncio.TaskGroup() as group,
    ):
        cancelled = group.create_task(cluster.refresh(["t"]))
        waiting = group.create_task(cluster.refresh(["t"]))
        await asyncio.sleep(0.5)
        cancelled.cancel()
        assert "t" in (await waiting).topics


@simulated(seeds=range(20))
async def test_metadata_requests_are_spread_over_all_brokers() -> None:
    played = Played()
    async with joined(played, bootstrap_servers="a:1") as cluster:
        for _ in range(60):
            await cluster.refresh(["t"])
    counts = [sum(asked == place for asked, _ in played.asked) for place in PLACES.values()]
    assert all(10 <= count <= 30 for count in counts), counts


@simulated(seeds=range(20))
async def test_the_bootstrap_servers_are_asked_if_no_known_broker_answers() -> None:
    played = Played()
    async with joined(played, bootstrap_servers="seed:9") as cluster:
        await cluster.refresh(["t"])
        played.fails = lambda address: None if address.host == "seed" else unreachable(address)
        for wire in played.wires:
            wire.connection.eof_received()
        assert "t" in (await cluster.refresh(["t"])).topics
        assert played.asked[-1][0] == Address("seed", 9)


@simulated(seeds=range(20))
async def test_a_silent_broker_delays_a_refresh_by_three_seconds() -> None:
    played = Played()
    async with joined(played, bootstrap_servers="a:1") as cluster:
        await cluster.refresh(["t"])
        played.silent = {A, B}
        start = asyncio.get_running_loop().time()
        for _ in range(5):
            await cluster.refresh(["t"])
        assert asyncio.get_running_loop().time() - start <= 4 * 3 + 1
        assert {asked for asked, _ in played.asked} == {A, B, C}


@simulated(seeds=range(20))
async def test_a_failed_refresh_reports_the_reasons_of_all_brokers() -> None:
    played = Played()
    played.fails = unreachable
    async with joined(played, bootstrap_servers="a:1,b:2") as cluster:
        with pytest.raises(
            NoBrokerAnswered, match=r"(?=.*a:1: connection refused)(?=.*b:2: connection refused)"
        ) as caught:
            await cluster.refresh(["t"])
        assert caught.value.retriable
        played.fails = reachable
        assert "t" in (await cluster.refresh(["t"])).topics


@simulated(seeds=range(20))
async def test_wrong_credentials_are_sent_once() -> None:
    played = Played()
    played.fails = lambda address: WrongCredentials(address, "no")
    async with joined(played, bootstrap_servers="a:1,b:2,c:3") as cluster:
        with pytest.raises(WrongCredentials):
            await cluster.refresh(["t"])
    assert len(played.tries) == 1


@simulated(seeds=range(20))
async def test_a_refused_certificate_is_reported_if_no_broker_answers() -> None:
    played = Played()
    played.fails = lambda address: None if address == C else CertificateRefused(address, "no")
    async with joined(played, bootstrap_servers="a:1,b:2,c:3") as cluster:
        assert "t" in (await cluster.refresh(["t"])).topics
    played.fails = lambda address: CertificateRefused(address, "no")
    async with joined(played, bootstrap_servers="a:1,b:2") as cluster:
        with pytest.raises(CertificateRefused):
            await cluster.refresh(["t"])


@simulated(seeds=range(20))
async def test_a_moved_node_is_found_at_its_new_address() -> None:
    played = Played()
    partition = TopicPartition("t", 0)
    async with joined(played, bootstrap_servers="a:1") as cluster:
        await cluster.refresh(["t"])
        assert cluster.leader(partition).broker.address == B
        played.places[2] = Address("moved", 22)
        await cluster.refresh()
        assert cluster.leader(partition).broker.address == Address("moved", 22)


@simulated(seeds=range(20))
async def test_a_refresh_outside_of_the_block_is_refused() -> None:
    async with joined(Played(), bootstrap_servers="a:1") as cluster:
        pass
    with pytest.raises(ClosedError):
        await cluster.refresh(["t"])
