"""State of partitions that are no longer fetched, which must not accumulate."""

import asyncio
import struct
from random import Random
from uuid import UUID

import pytest

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.fetch_request import PartitionFetch
from asyncconsumer.fetch.fetch_session import FetchSession
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.net.connection import RawResponse
from asyncconsumer.protocol.messages import FETCH
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

TP = TopicPartition("a", 0)
EMPTY_RESPONSE = RawResponse(17, memoryview(struct.pack(">ihi", 0, 0, 9) + b"\x01\x00"))


@simulated(range(3))
async def test_log_ends_of_partitions_that_are_no_longer_read_are_dropped() -> None:
    async with (
        FakeCluster(Random(1), brokers=1) as cluster,
        KafkaClient(
            cluster.config(), patience_ms=0, randomness=Random(2), opener=cluster.open
        ) as client,
    ):
        cluster.add_topic("a", 1)
        cluster.append(*TP, 5)
        manager = FetchManager(
            client.brokers, client.cluster, FetchConfig(), EngineConfig(), randomness=Random(3)
        )
        async with manager:
            channel = manager.channel()
            manager.reconcile({TP: FetchTarget(channel, 0)})
            records = aiter(Stream(channel))
            for _ in range(5):
                await anext(records)
            manager.reconcile({})
            await asyncio.sleep(60)
            assert len(manager._last_ends) == 1
            manager.reconcile({TP: FetchTarget(channel, 5, epoch=1)})
            assert manager.progress()[TP].high_watermark == 5  # before any response
            manager.reconcile({})
            await asyncio.sleep(700)
            assert manager._last_ends == {}


def test_names_of_topics_that_are_no_longer_fetched_are_dropped() -> None:
    session, partition = FetchSession(), TopicPartition("kept", 0)
    session.add(partition, PartitionFetch(0, 1, topic_id=UUID(int=1)))
    for number in range(2, 2_000):
        tp = TopicPartition(f"topic-{number}", 0)
        session.add(tp, PartitionFetch(0, 1, topic_id=UUID(int=number)))
        session.request(FetchConfig(), {FETCH.key: (4, 17)}, max_wait_ms=1, max_bytes=1, rack="")
        session.parse_response(EMPTY_RESPONSE)
        session.remove(tp)
    assert len(session._topic_names) <= 110
    assert session._topic_names[UUID(int=1).bytes] == "kept"
