"""Faults of fake brokers, with raw requests and with the production code."""

import asyncio
import functools
from collections.abc import Callable
from random import Random

import pytest

from asyncconsumer.errors import (
    ClosedError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    LeaderNotAvailable,
    NoBrokerAnswered,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.protocol.messages import LATEST, MetadataRequest
from asyncconsumer.testing.fake_kafka import FakeCluster, RecordPayload, State
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.types import Address
from tests.support.fake_clients import T0, client_of, clients, consumer_of, now, offsets, read

pytestmark = pytest.mark.fast


def later(seconds: float, verb: Callable[..., object], *args: object) -> None:
    asyncio.get_running_loop().call_later(seconds, verb, *args)


# --- killed brokers ------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_killed_broker_breaks_its_connections_and_refuses_new_ones() -> None:
    async with clients() as (cluster, client):
        connection = await client.connection()
        later(1, cluster.kill, 1)
        with pytest.raises(ConnectionLost, match="reset by peer"):
            await client.fetch((0, 0), max_wait_ms=10_000)
        assert connection.is_closed or connection.ending
        assert not cluster.view.partition(T0).watchers
        with pytest.raises(ConnectFailed, match="refused"):
            await client.connection()
        cluster.start(1)
        assert (await client.fetch((0, 0))).codes == {0: 0}


@simulated(seeds=range(5))
async def test_another_replica_leads_after_the_failover_time() -> None:
    async with clients(count=1, failover=5.0) as (cluster, client):
        number = (await client.fetch((0, 0), session=(0, 0))).session
        cluster.kill(1)
        await asyncio.sleep(4.9)
        assert cluster.leader(T0) == 1
        await asyncio.sleep(0.2)
        partition = cluster.view.partition(T0)
        assert partition.leader in (2, 3)
        assert (partition.epoch, partition.isr) == (2, (2, 3))
        reported = await client.ask(MetadataRequest(["t"]), node=2)
        assert sorted(broker["node_id"] for broker in reported["brokers"]) == [2, 3]
        assert reported["topics"][0]["partitions"][0]["offline_replicas"] == [1]
        cluster.start(1)
        assert sorted(partition.isr) == [1, 2, 3]
        assert (await client.fetch(session=(number, 1))).code == 70


@simulated(seeds=[0])
async def test_a_broker_that_restarts_in_time_leads_in_a_new_epoch() -> None:
    async with clients(failover=5.0) as (cluster, _):
        cluster.kill(1)
        cluster.start(1)
        await asyncio.sleep(10)
        assert (cluster.leader(T0), cluster.view.partition(T0).epoch) == (1, 2)
        assert cluster.brokers[1].state is State.UP


@simulated(seeds=[0])
async def test_a_partition_without_another_replica_has_no_leader() -> None:
    async with FakeCluster(Random(1)) as cluster, client_of(cluster) as client:
        cluster.add_topic("t", replicas=1)
        cluster.kill(1)
        await asyncio.sleep(2)
        assert cluster.leader(T0) == -1
        assert not cluster.append("t", 0, 3)
        assert cluster.truncate(T0, 1) == 0
        reported = await client.ask(MetadataRequest(["t"]), node=2)
        (partition,) = reported["topics"][0]["partitions"]
        assert (partition["error_code"], partition["leader"]) == (5, -1)
        async with consumer_of(cluster) as consumer:
            with pytest.raises(LeaderNotAvailable):
                await consumer.find_leader("t", 0)
            cluster.start(1)
            assert (await consumer.find_leader("t", 0)).epoch == 3
            assert cluster.append("t", 0, 3) == range(3)


@simulated(seeds=range(5))
async def test_only_an_in_sync_replica_becomes_the_leader() -> None:
    async with clients(count=1) as (cluster, _):
        for node in (2, 3, 1):  # broker 1 is the last leader
            cluster.kill(node)
            await asyncio.sleep(2)
        partition = cluster.view.partition(T0)
        assert (partition.leader, partition.isr) == (-1, (1,))
        with pytest.raises(ConfigError, match="no broker of the fake cluster is alive"):
            cluster.add_topic("u")
        cluster.start(2)
        assert (partition.leader, partition.isr) == (-1, (1,))
        cluster.start(1)
        assert (partition.leader, sorted(partition.isr)) == (1, [1, 2])


@simulated(seeds=range(20))
async def test_a_reader_continues_after_a_killed_broker() -> None:
    async with clients(count=5) as (cluster, _), consumer_of(cluster) as consumer:
        later(1, cluster.kill, 1)
        later(4, cluster.append, "t", 0, 5)
        assert offsets(await read(consumer, 10)) == list(range(10))


# --- silent brokers ------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_frozen_broker_answers_after_the_thaw() -> None:
    async with clients(count=1, latency=(0.0, 0.0)) as (cluster, client):
        await client.connection()
        cluster.freeze(1)
        later(10, cluster.thaw, 1)
        assert (await client.fetch((0, 0))).offsets() == [0]
        assert now() == 10
        later(0.5, cluster.freeze, 1)  # while a fetch waits at the broker
        later(20, cluster.thaw, 1)
        assert (await client.fetch((0, 1), max_wait_ms=1000)).offsets() == []
        assert now() == 30
        later(1, cluster.freeze, 1)
        later(2, cluster.append, "t", 0, 1)
        later(3, cluster.thaw, 1)
        assert (await client.fetch((0, 1), max_wait_ms=9000)).offsets() == [1]
        assert now() == 33


@simulated(seeds=range(5))
async def test_a_frozen_broker_accepts_connections_without_a_response() -> None:
    async with clients(latency=(0.0, 0.0)) as (cluster, client):
        cluster.freeze(1)
        with pytest.raises(ConnectFailed, match="within 5 s"):
            await client.connection()
        later(3, cluster.thaw, 1)
        assert (await client.connection()).usable
        cluster.freeze(2)
        later(1, cluster.kill, 2)
        with pytest.raises(ConnectFailed, match="refused"):
            await client.connection(2)


@simulated(seeds=range(5))
async def test_requests_to_a_frozen_broker_time_out() -> None:
    async with clients(count=1) as (cluster, client):
        connection = await client.connection()
        cluster.freeze(1)
        with pytest.raises(RequestTimedOut):
            await connection.request(MetadataRequest(["t"]), timeout=7)
        cluster.thaw(1)
        assert (await client.fetch((0, 0))).offsets() == [0]


@simulated(seeds=range(5))
async def test_a_black_hole_holds_data_until_it_is_restored() -> None:
    async with clients(count=1, latency=(0.0, 0.0)) as (cluster, client):
        await client.connection()
        cluster.black_hole(1)
        later(8, cluster.restore, 1)
        assert (await client.fetch((0, 0))).offsets() == [0]
        assert now() == 8
        later(0.5, cluster.black_hole, 1)  # the broker continues, but its response is held
        later(5, cluster.restore, 1)
        later(2, cluster.append, "t", 0, 1)
        answer = await client.fetch((0, 1), max_wait_ms=1000)
        assert (answer.offsets(), now()) == ([], 13)
        cluster.black_hole(1)
        with pytest.raises(ConnectFailed, match="within 5 s"):
            await client.connection(slot=1)


@simulated(seeds=range(5))
async def test_a_client_in_a_black_hole_does_not_detect_a_killed_broker() -> None:
    async with clients(latency=(0.0, 0.0)) as (cluster, client):
        connection = await client.connection()
        cluster.black_hole(1)
        cluster.kill(1)
        cluster.start(1)
        await asyncio.sleep(5)
        assert connection.usable
        later(2, cluster.restore, 1)
        with pytest.raises(ConnectionLost, match="reset"):
            await client.fetch((0, 0))
        assert now() == 7
        assert (await client.fetch((0, 0))).codes == {0: 0}


# --- connections ---------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_connections_are_reset_or_closed() -> None:
    async with clients(count=1) as (cluster, client):
        for politely, reason in ((False, "reset by peer"), (True, "closed the connection")):
            await client.connection()
            later(1, functools.partial(cluster.reset_connections, 1, politely=politely))
            with pytest.raises(ConnectionLost, match=reason):
                await client.fetch((0, 1), max_wait_ms=5000)
            assert cluster.brokers[1].connections == 0
        assert (await client.fetch((0, 0))).offsets() == [0]


@simulated(seeds=range(20))
async def test_a_broker_with_a_new_address_is_found() -> None:
    async with clients(count=3) as (cluster, _), consumer_of(cluster) as consumer:
        old = cluster.brokers[1].endpoint.address
        assert offsets(await read(consumer, 3)) == [0, 1, 2]
        assert cluster.change_address(1) == Address("broker-1", 9093)
        cluster.append("t", 0, 1)
        assert offsets(await read(consumer, 4)) == [0, 1, 2, 3]
        with pytest.raises(ConnectFailed, match="refused"):
            await cluster.open(old, cluster.config())
        assert cluster.change_address(1, Address("elsewhere", 1)) == Address("elsewhere", 1)


@simulated(seeds=[0])
async def test_a_slow_broker_delays_its_responses() -> None:
    async with clients(count=1, latency=(0.0, 0.0)) as (cluster, client):
        await client.connection()
        cluster.slow(1, 2.5)
        await client.fetch((0, 0))
        assert now() == 5
        cluster.slow(1, 0)
        await client.fetch((0, 0))
        assert now() == 5


@simulated(seeds=[0])
async def test_the_end_of_the_block_closes_all_connections() -> None:
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("t")
        connection = await cluster.open(Address("broker-1", 9092), cluster.config())
        beyond = await cluster.open(Address("broker-2", 9092), cluster.config())
        cluster.black_hole(2)
    await connection.wait_closed()
    await beyond.wait_closed()
    assert now() < 1
    assert not isinstance(connection.ending, ClosedError)
    assert cluster.brokers[1].connections == 0


# --- the production code above -------------------------------------------------------------------


@simulated(seeds=range(20))
async def test_a_reader_follows_the_leader_and_the_log() -> None:
    async with clients(count=4) as (cluster, _), consumer_of(cluster) as consumer:
        later(1, cluster.move_leader, T0, 3)
        later(2, cluster.append, "t", 0, 4)
        assert await read(consumer, 8) == cluster.records(T0)
        assert await consumer.offsets_before("t", 0, LATEST) == 8
        result = (await consumer.fetch({T0: 6}))[T0]
        assert [RecordPayload.of(record.value).offset for record in result.records] == [6, 7]
        cluster.delete_topic("t")
        with pytest.raises(UnknownTopicOrPartition):
            await consumer.partitions("t")
        cluster.add_topic("t", 2)
        assert await consumer.partitions("t") == [0, 1]


@simulated(seeds=range(5))
async def test_a_refresh_fails_while_all_brokers_are_dead() -> None:
    async with clients() as (cluster, client):
        for node in cluster.brokers:
            cluster.kill(node)
        async with Cluster(client.brokers, randomness=Random(1)) as learning:
            with pytest.raises(NoBrokerAnswered):
                await learning.refresh(["t"])
            cluster.start(3)
            cluster.start(1)
            assert (await learning.refresh(["t"])).leader(T0).broker.node_id == 1


class Chaos:
    """A schedule of faults, each of which ends. Broker 1 keeps its address, so that it is found."""

    def __init__(self, cluster: FakeCluster, randomness: Random) -> None:
        self.cluster = cluster
        self.randomness = randomness

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(self.randomness.random())
            self.cluster.append("t", 0, self.randomness.randrange(1, 10), batches=2)
            self.step(self.randomness.randrange(1, 4))

    def step(self, node: int) -> None:
        cluster, wait = self.cluster, 3 * self.randomness.random()
        begin, end = self.randomness.choice(
            [
                (self.kill, cluster.start),
                (cluster.freeze, cluster.thaw),
                (cluster.black_hole, cluster.restore),
                (cluster.go_stale, cluster.catch_up),
                (self.slow, lambda node: cluster.slow(node, 0)),
                (lambda node: cluster.throttle(node, 0.3), cluster.drop_sessions),
                (cluster.reset_connections, cluster.drop_sessions),
                (self.lead, self.lead),
                (self.refuse, self.refuse),
                (lambda _: cluster.change_address(3), cluster.reset_connections),
            ]
        )
        begin(node)
        later(wait, end, node)

    def kill(self, node: int) -> None:
        if all(broker.running for broker in self.cluster.brokers.values()):
            self.cluster.kill(node)

    def slow(self, node: int) -> None:
        self.cluster.slow(node, self.randomness.random())

    def lead(self, node: int) -> None:
        if node in self.cluster.view.endpoints:
            self.cluster.move_leader(T0, node)

    def refuse(self, node: int) -> None:
        self.cluster.fail_next(self.randomness.choice([1, 2, 3]), 6, node_id=node)


async def read_during_faults(seed: int) -> None:
    randomness = Random(seed)
    async with FakeCluster(randomness) as cluster, consumer_of(cluster, randomness) as consumer:
        cluster.add_topic("t")
        async with asyncio.TaskGroup() as group:
            faults = group.create_task(Chaos(cluster, randomness).run(20))
            results: list[RecordPayload] = []
            stream = consumer.read("t", 0, 0)
            async for record in stream:
                results.append(RecordPayload.of(record.value))
                if faults.done() and record.offset + 1 == cluster.end(T0):
                    break
            stream.close()
        assert results == cluster.records(T0)


def test_a_reader_gets_every_record_once_and_in_order_despite_faults() -> None:
    for seed in range(100):
        try:
            run(functools.partial(read_during_faults, seed), seed=seed, limit=3600)
        except BaseException as error:
            error.add_note(f"This was seed {seed}.")
            raise
