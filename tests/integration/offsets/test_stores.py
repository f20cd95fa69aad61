"""Offsets in real ZooKeeper and Kafka, and in both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from aiokafka import AIOKafkaConsumer
from aiozk.protocol import WORLD_READABLE

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    IllegalGeneration,
    NoAuth,
    NothingClaimed,
    PartlyCommitted,
    SessionExpired,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.dual import DualOffsets
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.offsets.zookeeper import ZooKeeperOffsets
from asyncconsumer.testing.handles import KafkaWithZooKeeper, ZooKeeperHandle
from asyncconsumer.types import NO_MEMBER, MemberIdentity, TopicPartition
from asyncconsumer.zookeeper.recipes import ensure_path
from asyncconsumer.zookeeper.requests import CREATOR_ALL
from asyncconsumer.zookeeper.session import ZooKeeperSession
from tests.integration.zookeeper.test_recipes import lose
from tests.support.zookeeper_sessions import proxied, session

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
CREATE, SET = 1, 5


def offsets_of(zk: ZooKeeperSession, group: str) -> ZooKeeperOffsets:
    epoch = zk.epoch
    return ZooKeeperOffsets(zk, group, epoch=lambda: epoch, randomness=Random(0))


@asynccontextmanager
async def kafka_offsets(kafka: KafkaWithZooKeeper, group: str) -> AsyncIterator[KafkaOffsets]:
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    async with KafkaClient(config, patience_ms=10_000) as client:
        coordinator = Coordinator(group, client.brokers, client.cluster)
        yield KafkaOffsets(coordinator, patience_ms=10_000, randomness=Random(0))


# --- ZooKeeper -----------------------------------------------------------------------------------


async def test_offset_znodes_are_those_of_the_classic_consumer(zookeeper: ZooKeeperHandle) -> None:
    group = zookeeper.group()
    root = f"/consumers/{group}/offsets"
    async with session(zookeeper.connect) as zk:
        offsets = offsets_of(zk, group)
        assert await offsets.load([P0, P1]) == {P0: None, P1: None}
        await offsets.commit({P0: 250, P1: 7})
        nodes = [await zk.get(path) for path in (root, f"{root}/t", f"{root}/t/0", f"{root}/t/1")]
        assert [node.data for node in nodes] == [None, None, b"250", b"7"]
        assert {node.stat.ephemeral_owner for node in nodes} == {0}
        await offsets.commit({P0: 251, P1: 7})
        assert await offsets_of(zk, group).load([P0, P1, P2]) == {P0: 251, P1: 7, P2: None}
        assert (await zk.get(f"{root}/t/1")).stat.version == 0  # not written again


@pytest.mark.parametrize("opcode", [CREATE, SET])
@pytest.mark.parametrize("applied", [True, False])
async def test_a_commit_succeeds_though_its_connection_broke(
    zookeeper: ZooKeeperHandle, opcode: int, applied: bool
) -> None:
    group = zookeeper.group()
    async with proxied(zookeeper) as (proxy, zk):
        offsets = offsets_of(zk, group)
        await offsets.commit({P0: 1, P1: 1})
        written = {P0: 2, P1: 2} if opcode == SET else {P2: 2, P0: 2}
        sent = lose(proxy, opcode, applied=applied)
        await offsets.commit(written)
        assert sent
        assert await offsets.load(written) == written
        assert zk.epoch == 1


async def test_a_commit_fails_after_its_session_expired(zookeeper: ZooKeeperHandle) -> None:
    group = zookeeper.group()
    async with session(zookeeper.connect) as zk:
        offsets = offsets_of(zk, group)
        await offsets.commit({P0: 10})
        await zookeeper.server.expire_session(zk.session_id, zk.password)
        with pytest.raises(SessionExpired):
            await offsets.commit({P0: 11})
        await zk.wait_expired(1)
        await zk.connected.wait()
        with pytest.raises(SessionExpired):
            await offsets.commit({P0: 12})
        assert await offsets_of(zk, group).load([P0]) == {P0: 10}


async def test_a_commit_without_write_permission_names_the_partition(
    zookeeper: ZooKeeperHandle,
) -> None:
    group = zookeeper.group()
    root = f"/consumers/{group}/offsets"
    async with session(zookeeper.connect, auth="alice:x") as alice:
        await ensure_path(alice, f"{root}/t")
        await alice.create(f"{root}/t/1", b"5", acl=(*CREATOR_ALL, WORLD_READABLE))
    async with session(zookeeper.connect) as zk:
        offsets = offsets_of(zk, group)
        with pytest.raises(
            PartlyCommitted, match=r"t\[1\] was not committed, the other offsets were"
        ) as excinfo:
            await offsets.commit({P0: 9, P1: 9, P2: 9})
        assert [(tp, type(error)) for tp, error in excinfo.value.failed.items()] == [(P1, NoAuth)]
        assert not excinfo.value.retriable
        assert await offsets.load([P0, P1, P2]) == {P0: 9, P1: 5, P2: 9}
        with pytest.raises(NoAuth):
            await offsets.commit({P1: 9})


# --- Kafka, and both -----------------------------------------------------------------------------


async def test_a_commit_for_a_missing_topic_stores_the_other_offsets(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    group, good = kafka_zk.group(), TopicPartition(await kafka_zk.topic(), 0)
    missing = TopicPartition("no-such-topic", 0)
    config = ConnectionConfig(bootstrap_servers=kafka_zk.bootstrap_servers)
    async with (
        KafkaClient(config, patience_ms=0) as client,
        kafka_offsets(kafka_zk, group) as patient,
    ):
        assert await patient.load([good]) == {good: None}  # there is a coordinator now
        coordinator = Coordinator(group, client.brokers, client.cluster)
        offsets = KafkaOffsets(coordinator, patience_ms=0, randomness=Random(0))
        with pytest.raises(PartlyCommitted) as excinfo:
            await offsets.commit({missing: 1, good: 1})
        (error,) = excinfo.value.failed.values()
        assert isinstance(error, UnknownTopicOrPartition)
        assert excinfo.value.retriable
        assert await patient.load([good]) == {good: 1}
        with pytest.raises(UnknownTopicOrPartition):
            await offsets.commit({missing: 1})


async def test_a_commit_without_a_claim_raises(kafka_zk: KafkaWithZooKeeper) -> None:
    group, tp = kafka_zk.group(), TopicPartition(await kafka_zk.topic(), 0)
    claims = iter((NO_MEMBER, None))
    config = ConnectionConfig(bootstrap_servers=kafka_zk.bootstrap_servers)
    async with KafkaClient(config, patience_ms=0) as client:
        offsets = KafkaOffsets(
            Coordinator(group, client.brokers, client.cluster),
            patience_ms=10_000,
            randomness=Random(0),
            identity=lambda: next(claims),
        )
        await offsets.commit({tp: 1})
        with pytest.raises(NothingClaimed):
            await offsets.commit({tp: 2})
        assert await offsets.load([tp]) == {tp: 1}


async def test_a_group_migrates_from_zookeeper_to_kafka_and_back(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    group, topic = kafka_zk.group(), await kafka_zk.topic(partitions=3)
    tp, other, third = (TopicPartition(topic, number) for number in range(3))
    async with session(kafka_zk.zookeeper_connect) as zk, kafka_offsets(kafka_zk, group) as kafka:
        classic = offsets_of(zk, group)
        await classic.commit({tp: 100, other: 7})  # by a member with `offsets.storage=zookeeper`
        dual = DualOffsets(kafka, offsets_of(zk, group))
        assert await dual.load([tp, other, third]) == {tp: 100, other: 7, third: None}
        await dual.commit({tp: 120})
        assert await kafka.load([tp, other]) == {tp: 120, other: None}
        assert await offsets_of(zk, group).load([tp, other]) == {tp: 120, other: 7}
        await kafka.commit({tp: 150, other: 9})  # by a member with `offsets.storage=kafka`
        assert await dual.load([tp, other]) == {tp: 150, other: 9}
        await dual.commit({tp: 151, other: 10, third: 1})
        back = DualOffsets(offsets_of(zk, group), kafka)
        assert await back.load([third, tp]) == {third: 1, tp: 151}
        await back.commit({tp: 160})
        assert await offsets_of(zk, group).load([tp]) == await kafka.load([tp]) == {tp: 160}
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka_zk.bootstrap_servers, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.assign([tp])
        assert await consumer.committed(tp) == 160


async def test_a_refused_commit_is_repeated_with_the_current_member_id(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    group, tp = kafka_zk.group(), TopicPartition(await kafka_zk.topic(), 0)
    fenced = MemberIdentity("a-former-member", 3)
    # the identity for the request, after the error, and for the next request
    asked = iter((fenced, fenced, NO_MEMBER))
    config = ConnectionConfig(bootstrap_servers=kafka_zk.bootstrap_servers)
    async with KafkaClient(config, patience_ms=0) as client:
        coordinator = Coordinator(group, client.brokers, client.cluster)
        offsets = KafkaOffsets(
            coordinator,
            patience_ms=10_000,
            randomness=Random(0),
            identity=lambda: next(asked),
        )
        await offsets.load([tp])  # there is a coordinator now
        await offsets.commit({tp: 7})
        assert await offsets.load([tp]) == {tp: 7}
        hopeless = KafkaOffsets(
            coordinator, patience_ms=200, randomness=Random(0), identity=lambda: fenced
        )
        with pytest.raises((UnknownMemberId, IllegalGeneration)):
            await hopeless.commit({tp: 8})
        assert await offsets.load([tp]) == {tp: 7}
