"""Equality of the fake cluster and a real one."""

from collections.abc import AsyncIterator
from random import Random
from typing import Any
from uuid import UUID

import pytest_asyncio

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.net.pool import BrokerPool
from asyncconsumer.protocol.messages import (
    EARLIEST,
    FETCH,
    LATEST,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    READ_COMMITTED,
    EpochRow,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListedOffset,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from asyncconsumer.records import decoding
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.handles import KafkaCluster
from asyncconsumer.types import TopicPartition
from tests.support.helpers import delete_records, until
from tests.support.twin_clusters import MOMENT, Both, produce_batch

UNKNOWN_ID = UUID(int=12345)


@pytest_asyncio.fixture
async def both(kafka_cluster: KafkaCluster) -> AsyncIterator[Both]:
    config = ConnectionConfig(bootstrap_servers=kafka_cluster.bootstrap_servers)
    async with (
        FakeCluster(Random(1)) as cluster,
        BrokerPool(config, randomness=Random(2)) as real,
        BrokerPool(cluster.config(), randomness=Random(3), opener=cluster.open) as fake,
    ):
        yield Both(real, fake, kafka_cluster, cluster)


def fetch(
    name: str,
    topic_id: UUID | None,
    *rows: FetchPartition,
    max_bytes: int = 10**6,
    wait: int = 0,
    **options: Any,
) -> FetchRequest:
    topics = {FetchTopic(name, topic_id): rows} if rows else {}
    return FetchRequest(topics, max_wait_ms=wait, min_bytes=1, max_bytes=max_bytes, **options)


async def test_the_fake_cluster_answers_as_the_real_one(
    both: Both, kafka_cluster: KafkaCluster
) -> None:
    # without a retention, because the records are years old
    name = await kafka_cluster.topic(partitions=2, config={"retention.ms": "-1"})
    servers = kafka_cluster.bootstrap_servers
    await produce_batch(servers, name, 0, [b"a" * 50] * 3, MOMENT)
    await kafka_cluster.admin.move_leader(name, 0, 2)
    await produce_batch(servers, name, 0, [b"b" * 70] * 2, MOMENT + 1000)
    await produce_batch(servers, name, 0, [b"c" * 20] * 4, MOMENT + 2000)
    await kafka_cluster.admin.move_leader(name, 0, 1)
    await kafka_cluster.admin.move_leader(name, 1, 1)
    await produce_batch(servers, name, 1, [b"d" * 90] * 2, MOMENT + 3000)
    await both.mirror(name, 9, 2)

    await compare_metadata(both, name)
    await compare_offsets(both, name)
    await compare_epochs(both, name)
    await compare_fetches(both, name)
    await compare_followers(both, name)
    await compare_sessions(both, name)
    await compare_log_starts(both, name)
    await compare_a_re_created_topic(both, name)


async def compare_metadata(both: Both, name: str) -> None:
    for version in METADATA.versions:
        request = MetadataRequest([name, "never-made", "not legal"])
        answer = await both.same(1, request, version)
        assert [row["error_code"] for row in answer["topics"]] == [3, 17, 0]


async def compare_offsets(both: Both, name: str) -> None:
    epoch = both.cluster.view.partition(TopicPartition(name, 0)).epoch
    moments = [EARLIEST, LATEST, MOMENT - 1, MOMENT + 1, MOMENT + 500, MOMENT + 2003, MOMENT + 2004]
    for version in LIST_OFFSETS.versions:
        for moment in [*moments, *([MAX_TIMESTAMP] if version >= 7 else [])]:
            rows = [ListedOffset(0, moment), ListedOffset(1, moment), ListedOffset(7, moment)]
            request = ListOffsetsRequest({name: rows, "never-made": [ListedOffset(0, moment)]})
            await both.same(1, request, version)
            if version >= 4:
                for wrong in (epoch - 1, epoch, epoch + 1):
                    rows = [ListedOffset(0, moment, wrong)]
                    for node in (1, 2):
                        await both.same(node, ListOffsetsRequest({name: rows}), version)


async def compare_epochs(both: Both, name: str) -> None:
    current = both.cluster.view.partition(TopicPartition(name, 0)).epoch
    for version in OFFSET_FOR_LEADER_EPOCH.versions:
        for epoch in range(-1, current + 2):
            for believed in (-1, current - 1, current, current + 1):
                for node in (1, 3):
                    rows = [EpochRow(0, epoch, believed), EpochRow(9, epoch)]
                    asked = {name: rows, "never-made": [EpochRow(0, epoch)]}
                    await both.same(node, OffsetForLeaderEpochRequest(asked), version)


async def compare_fetches(both: Both, name: str) -> None:
    topic = both.cluster.view.topic(name)
    current = topic.partitions[0].epoch
    for version in FETCH.versions:
        by = topic.topic_id if version >= 13 else None
        for offset in (0, 1, 3, 4, 8, 9, 10, 1000):
            rows = [FetchPartition(0, offset, 10**6), FetchPartition(1, 1, 10**6)]
            await both.fetched(1, version, fetch(name, by, *rows))
        for size in (0, 1, 100, 150, 250, 300, 10**6):  # limits at and between batches
            rows = [FetchPartition(0, 0, size), FetchPartition(1, 0, size)]
            await both.fetched(1, version, fetch(name, by, *rows))
            await both.fetched(1, version, fetch(name, by, *rows[::-1], max_bytes=size))
        rows = [FetchPartition(0, 0, 10**6), FetchPartition(5, 0, 10**6)]
        await both.fetched(1, version, fetch(name, by, *rows, isolation_level=READ_COMMITTED))
        unknown = fetch("never-made", UNKNOWN_ID if by else None, FetchPartition(0, 0, 10**6))
        await both.fetched(1, version, unknown)
        if version >= 9:
            for epoch in (current - 1, current, current + 1):
                row = FetchPartition(0, 3, 10**6, epoch)
                await both.fetched(1, version, fetch(name, by, row))
        if version >= 12:
            for last in range(current + 2):
                for offset in (0, 3, 5, 9, 10):
                    row = FetchPartition(0, offset, 10**6, current, last)
                    await both.fetched(1, version, fetch(name, by, row))


async def compare_followers(both: Both, name: str) -> None:
    topic = both.cluster.view.topic(name)

    async def caught_up() -> bool:
        raw = await both.send(0, 2, fetch(name, topic.topic_id, FetchPartition(0, 9, 10**6)), 13)
        return decoding.fetch_answer(raw.body, 13).partitions[0].high_watermark == 9

    await until(caught_up)
    for version in FETCH.versions:
        by = topic.topic_id if version >= 13 else None
        for epoch in (-1, topic.partitions[0].epoch - 1, topic.partitions[0].epoch):
            row = FetchPartition(0, 3, 10**6, epoch)
            await both.fetched(2, version, fetch(name, by, row))


async def compare_sessions(both: Both, name: str) -> None:
    for version in (7, 11, 12, 13, 16, 17):
        await compare_session(both, name, version)


async def compare_session(both: Both, name: str, version: int) -> None:
    topic = both.cluster.view.topic(name)
    by = topic.topic_id if version >= 13 else None

    async def step(
        ids: list[int], epoch: int, *rows: FetchPartition, **options: Any
    ) -> tuple[list[int], list[dict[str, Any]]]:
        made = [fetch(name, by, *rows, session=(session, epoch), **options) for session in ids]
        return await both.fetched(1, version, *made)

    wait = 50
    full = FetchPartition(0, 0, 10**6), FetchPartition(1, 2, 10**6)
    ids, _ = await step([0, 0], 0, *full)
    assert all(ids)
    _, seen = await step(ids, 1, FetchPartition(0, 9, 10**6), wait=wait)
    assert len(seen) == 1  # no new record, so no partition
    _, seen = await step(ids, 2, FetchPartition(0, 3, 10**6))
    assert len(seen) == 2
    await step(ids, 2, FetchPartition(0, 3, 10**6))  # 71
    await step(ids, 4)  # 71
    await step([number + 1 for number in ids], 3)  # 70, mostly
    _, seen = await step(ids, 3, FetchPartition(0, 1000, 10**6), FetchPartition(7, 0, 10))
    assert [row.get("error_code") for row in seen[1:]] == [1, 3]
    await step(ids, 4, wait=wait)  # errors are reported each time
    forgotten = {FetchTopic(name, by): [7, 0]}
    await step(ids, 5, FetchPartition(1, 0, 300), forgotten=forgotten)
    await step(ids, 6, FetchPartition(0, 0, 300), FetchPartition(1, 0, 300), max_bytes=200)
    for epoch in (7, 8, 9):  # the partitions take turns
        await step(ids, epoch, max_bytes=200)
    other = None if by else topic.topic_id
    mixed = [fetch(name, other, session=(session, 10)) for session in ids]
    _, seen = await both.fetched(1, 13 if other else 12, *mixed)
    assert seen[0]["code"] == 106
    await step(ids, 10, forgotten={FetchTopic(name, by): [0, 1]})  # an empty session is closed
    await step(ids, 11)  # 70
    ids, _ = await step([0, 0], 0, *full)
    await step(ids, -1, *full)
    await step(ids, 1)  # 70
    ids, _ = await step([0, 0], 0, *full)
    again, _ = await step(ids, 0, *full)
    assert again != ids
    await step(ids, 1)  # 70
    await step(again, 1, FetchPartition(0, 9, 10**6), wait=wait)


async def compare_log_starts(both: Both, name: str) -> None:
    topic = both.cluster.view.topic(name)
    row, other = FetchPartition(0, 9, 10**6), FetchPartition(1, 2, 10**6)
    ids, _ = await both.fetched(1, 16, fetch(name, topic.topic_id, row, other, session=(0, 0)))
    await delete_records(both.kafka, name, 0, 4)
    tp = TopicPartition(name, 0)
    assert both.cluster.advance_log_start(tp, 4) == 4
    await both.fetched(1, 16, *(fetch(name, topic.topic_id, session=(number, 1)) for number in ids))
    for offset in (0, 3, 4, 5, 9):
        asked = FetchPartition(0, offset, 10**6)
        await both.fetched(1, 16, fetch(name, topic.topic_id, asked))
        asked = FetchPartition(0, offset, 10**6, last_fetched_epoch=topic.partitions[0].epoch)
        await both.fetched(1, 16, fetch(name, topic.topic_id, asked))
    for moment in (EARLIEST, MOMENT - 1, MOMENT + 1500):
        await both.same(1, ListOffsetsRequest({name: [ListedOffset(0, moment)]}), 7)
    await compare_epochs(both, name)


async def compare_a_re_created_topic(both: Both, name: str) -> None:
    old = both.cluster.view.topic(name).topic_id
    admin = both.kafka.admin
    row = FetchPartition(0, 9, 10**6)
    led = {}
    for version in (11, 16):
        by = old if version >= 13 else None
        led[version], _ = await both.fetched(1, version, fetch(name, by, row, session=(0, 0)))
    await admin.delete_topic(name)
    both.cluster.delete_topic(name)
    await both.fetched(1, 11, *(fetch(name, None, session=(number, 1)) for number in led[11]))
    await both.fetched(1, 16, *(fetch(name, old, session=(number, 1)) for number in led[16]))
    await both.fetched(1, 16, fetch(name, old, row))
    await both.same(1, MetadataRequest([name]), 12)
    await admin.create_topic(name, partitions=1, replication_factor=3)
    await admin.move_leader(name, 0, 1)
    await both.mirror(name, 0)
    await both.fetched(1, 16, *(fetch(name, old, session=(number, 2)) for number in led[16]))
    await both.fetched(1, 11, *(fetch(name, None, session=(number, 2)) for number in led[11]))
    await both.fetched(1, 16, fetch(name, old, row))
