"""Changes of topics on a real broker, and the events of the fetch engine."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer.errors import OffsetUnavailable, TopicRecreated, UnknownTopicOrPartition
from asyncconsumer.events import Recovered, Recreated, Skipped, Stalled, Truncated
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.net.discovery import partitions_of
from asyncconsumer.protocol.messages import EARLIEST
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle
from asyncconsumer.testing.servers import AdminFailed, Kafka
from asyncconsumer.types import TopicPartition
from tests.support.helpers import delete_records, until
from tests.support.real_fetch import Engine, open_engine, values

OLD = [b"old %d" % number for number in range(10)]
NEW = [b"new %d" % number for number in range(25)]


async def write(
    servers: str, tp: TopicPartition, requested: list[bytes], acks: str = "all"
) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=servers, acks=int(acks) if acks.isdigit() else acks
    ) as producer:
        for value in requested:
            await producer.send(tp.topic, value, partition=tp.partition)
        await producer.flush()


async def filled(kafka: KafkaHandle, requested: list[bytes]) -> TopicPartition:
    tp = TopicPartition(await kafka.topic(), 0)
    await write(kafka.bootstrap_servers, tp, requested)
    return tp


# --- deleted and re-created ----------------------------------------------------------------------


async def test_metadata_requests_do_not_re_create_a_deleted_topic(kafka: KafkaHandle) -> None:
    tp = await filled(kafka, OLD)
    async with open_engine(kafka.bootstrap_servers, auto_offset_reset="earliest") as engine:
        stream = engine.read([tp])
        assert await values(stream, 10) == OLD
        await kafka.admin.delete_topic(tp.topic)
        await until(
            lambda: isinstance(engine.manager.progress()[tp].error, UnknownTopicOrPartition)
        )
        for _ in range(5):  # a metadata request could create the topic
            await engine.session.cluster.refresh([tp.topic])
        with pytest.raises(AdminFailed, match="no broker knows"):
            await kafka.admin.leader(*tp)
        await kafka.admin.create_topic(tp.topic)
        await write(kafka.bootstrap_servers, tp, NEW)
        assert await values(stream, 25) == NEW
        assert engine.observed(Recreated) == [Recreated(tp, 10)]


async def recreate_meanwhile(cluster: KafkaCluster, tp: TopicPartition) -> None:
    """Re-create the topic, with a longer log, while the engine's network is down."""
    for proxy in cluster.proxies.values():
        proxy.black_hole()
    await cluster.admin.delete_topic(tp.topic)
    await cluster.admin.create_topic(tp.topic, replication_factor=3)
    await write(cluster.bootstrap_servers, tp, NEW)
    for proxy in cluster.proxies.values():
        proxy.heal()


async def test_a_re_created_topic_with_a_longer_log_is_detected(
    kafka_cluster: KafkaCluster,
) -> None:
    policies = ["earliest", "latest", "none"]
    ats = {policy: await filled(kafka_cluster, OLD) for policy in policies}
    async with AsyncExitStack() as stack:
        engines = {
            policy: await stack.enter_async_context(
                open_engine(kafka_cluster.proxied_servers, auto_offset_reset=policy)
            )
            for policy in policies
        }
        streams = {policy: engines[policy].read([ats[policy]], 0) for policy in policies}
        for stream in streams.values():
            assert await values(stream, 10) == OLD
        for tp in ats.values():
            await recreate_meanwhile(kafka_cluster, tp)

        assert await values(streams["earliest"], 25) == NEW
        tp = ats["latest"]
        await until(lambda: engines["latest"].manager.progress()[tp].fetched == 25)
        await write(kafka_cluster.bootstrap_servers, tp, [b"newer"])
        assert await values(streams["latest"], 1) == [b"newer"]
        with pytest.raises(TopicRecreated, match="read, up to offset 10"):
            await values(streams["none"], 1)
        for policy in ("earliest", "latest"):
            assert engines[policy].observed(Recreated) == [Recreated(ats[policy], 10)]


# --- offsets outside of the log ------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "stop"), [("earliest", 6), ("latest", 10), ("none", None)])
async def test_offsets_that_retention_deleted_are_reported(
    kafka: KafkaHandle, policy: str, stop: int | None
) -> None:
    tp = await filled(kafka, OLD)
    await delete_records(kafka, *tp, before=6)
    async with open_engine(kafka.bootstrap_servers, auto_offset_reset=policy) as engine:
        stream = engine.read([tp], 2)
        if stop is None:
            with pytest.raises(OffsetUnavailable, match="has no offset 2: 4 offsets before 6 are"):
                await values(stream, 1)
            return
        await until(lambda: engine.observed(Skipped) == [Skipped(tp, 2, stop)])
        await write(kafka.bootstrap_servers, tp, NEW)
        assert await values(stream, 10 - stop + 25) == OLD[stop:] + NEW


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
async def test_an_offset_after_the_end_is_reported_and_reset_only_by_policy(
    kafka: KafkaHandle, policy: str
) -> None:
    tp = await filled(kafka, OLD)
    async with open_engine(kafka.bootstrap_servers, auto_offset_reset=policy) as engine:
        stream = engine.read([tp], 5000)
        if policy == "none":
            with pytest.raises(OffsetUnavailable, match="has no offset 5000: the log ends at 10"):
                await values(stream, 1)
            return
        stop = 0 if policy == "earliest" else 10
        await until(lambda: engine.observed(Skipped) == [Skipped(tp, 5000, stop)])
        await write(kafka.bootstrap_servers, tp, NEW)
        assert await values(stream, 10 - stop + 25) == OLD[stop:] + NEW


async def test_a_truncation_by_an_unclean_election_is_reported(kafka_cluster: KafkaCluster) -> None:
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    tp = TopicPartition(await kafka_cluster.topic(replication_factor=2, config=config), 0)
    servers = kafka_cluster.bootstrap_servers
    await write(servers, tp, OLD)
    async with open_engine(servers, auto_offset_reset="none") as engine:
        stream = engine.read([tp], 0)
        assert await values(stream, 10) == OLD
        partition = (
            (await engine.session.cluster.refresh([tp.topic])).topics[tp.topic].partitions[0]
        )
        leader = kafka_cluster.brokers[partition.leader]
        (other,) = set(partition.replicas) - {partition.leader}
        follower = kafka_cluster.brokers[other]
        await follower.stop()
        lost = [b"lost %d" % number for number in range(7)]
        await write(servers, tp, lost, acks="1")
        assert await values(stream, 7) == lost
        await leader.kill()
        await follower.start()

        async def elected() -> bool:
            return await follower.leader_of(*tp) == other

        await until(elected, 120)
        await write(servers, tp, NEW)
        assert await values(stream, 25) == NEW
        assert engine.observed(Truncated) == [Truncated(tp, 10, 17)]
        assert engine.manager.progress()[tp].fetched == 35


# --- replicas and transactions -------------------------------------------------------------------


async def test_the_replica_in_the_rack_is_read_and_the_leader_after_its_kill() -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    async with Kafka(brokers=3, racks=True, config={"replica.selector.class": selector}) as kafka:
        tp = TopicPartition("orders", 0)
        await kafka.admin.create_topic("orders", replication_factor=3)
        await kafka.admin.move_leader("orders", 0, to=1)
        await write(kafka.bootstrap_servers, tp, OLD)
        async with open_engine(kafka.bootstrap_servers, {"client_rack": "rack-2"}) as engine:
            stream = engine.read([tp], 0)
            assert await values(stream, 10) == OLD
            assert engine.manager.progress()[tp].node_id == 2
            await kafka.brokers[2].kill()
            await write(kafka.bootstrap_servers, tp, NEW)
            assert await values(stream, 25) == NEW
            assert engine.manager.progress()[tp].node_id == 1


async def test_read_committed_delivers_no_record_of_an_aborted_transaction(
    kafka: KafkaHandle,
) -> None:
    tp = TopicPartition(await kafka.topic(), 0)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=kafka.group()
    ) as producer:
        for number in range(20):
            await producer.begin_transaction()
            for _ in range(10):
                await producer.send(tp.topic, b"%d" % number, partition=0)
            await (producer.abort_transaction if number % 2 else producer.commit_transaction)()
        async with open_engine(
            kafka.bootstrap_servers, {"isolation_level": "read_committed"}
        ) as engine:
            stream = engine.read([tp])
            committed = [b"%d" % number for number in range(0, 20, 2) for _ in range(10)]
            assert await values(stream, 100) == committed
            await producer.begin_transaction()
            await producer.send(tp.topic, b"open", partition=0)
            await producer.flush()
            before = engine.manager.progress()[tp]
            await until(lambda: engine.manager.progress()[tp].high_watermark > before.fetched)
            assert engine.manager.progress()[tp].fetched == before.fetched
            await producer.commit_transaction()
            assert await values(stream, 1) == [b"open"]


# --- growth --------------------------------------------------------------------------------------


async def test_added_partitions_are_read_from_their_beginning(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=1)
    servers = kafka.bootstrap_servers
    expected = sorted(b"%d" % number for number in range(100))
    async with (
        open_engine(servers, auto_offset_reset="latest") as engine,
        asyncio.TaskGroup() as group,
    ):
        channel = engine.manager.channel()
        known = asyncio.Event()

        async def follow() -> None:
            async for partitions in partitions_of(engine.session.cluster, [topic], 500):
                ats = [TopicPartition(topic, number) for number in partitions[topic]]
                engine.manager.reconcile({tp: FetchTarget(channel, EARLIEST) for tp in ats})
                known.set()

        following = group.create_task(follow())
        await known.wait()
        await kafka.admin.add_partitions(topic, 3)
        for number in range(3):
            tp = TopicPartition(topic, number)
            await write(servers, tp, [value for value in expected if int(value) % 3 == number])
        assert sorted(filter(None, await values(Stream(channel), 100))) == expected
        following.cancel()


# --- stalled partitions --------------------------------------------------------------------------


async def test_a_stream_that_is_not_read_is_stalled_and_delays_no_other(
    kafka: KafkaHandle,
) -> None:
    big = [b"x" * 10_000] * 200
    stuck, busy = await filled(kafka, big), await filled(kafka, big)
    fetch = {"max_partition_fetch_bytes": 50_000}
    async with open_engine(
        kafka.bootstrap_servers, fetch, max_buffered_bytes=2**19, stall_timeout_ms=1000
    ) as engine:
        unread = engine.read([stuck])
        assert len(await values(engine.read([busy]), 200)) == 200
        await until(lambda: stuck in engine.manager.stalled())
        assert engine.manager.stalled().keys() == {stuck}
        assert "its stream is not read, " in engine.manager.stalled()[stuck].reason
        assert len(await values(unread, 200)) == 200
        await recovered(engine, stuck)


async def test_partitions_of_unreachable_brokers_are_stalled(kafka_cluster: KafkaCluster) -> None:
    tp = await filled(kafka_cluster, OLD)
    async with open_engine(kafka_cluster.proxied_servers, stall_timeout_ms=1000) as engine:
        stream = engine.read([tp])
        assert await values(stream, 10) == OLD
        for proxy in kafka_cluster.proxies.values():
            proxy.black_hole()
        await until(lambda: tp in engine.manager.stalled())
        assert "does not answer" in engine.manager.stalled()[tp].reason
        await until(lambda: [type(event) for event in engine.events] == [Stalled])
        for proxy in kafka_cluster.proxies.values():
            proxy.heal()
        await write(kafka_cluster.bootstrap_servers, tp, NEW)
        assert await values(stream, 25) == NEW
        await recovered(engine, tp)


async def test_a_partition_of_a_missing_topic_is_stalled(kafka: KafkaHandle) -> None:
    tp = TopicPartition(kafka.group(), 0)  # a topic that does not exist
    async with open_engine(
        kafka.bootstrap_servers, stall_timeout_ms=1000, auto_offset_reset="earliest"
    ) as engine:
        stream = engine.read([tp])
        await until(lambda: tp in engine.manager.stalled())
        reason = engine.manager.stalled()[tp].reason
        assert "no broker to be read from" in reason
        assert "does not know the topic" in reason
        await kafka.admin.create_topic(tp.topic)
        await write(kafka.bootstrap_servers, tp, NEW)
        assert await values(stream, 25) == NEW
        await recovered(engine, tp)


async def recovered(engine: Engine, tp: TopicPartition) -> None:
    await until(lambda: tp not in engine.manager.stalled())
    await until(lambda: [event[0] for event in engine.observed(Recovered)] == [tp])
