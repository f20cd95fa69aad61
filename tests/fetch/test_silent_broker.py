"""The time until reading resumes after a broker stops to answer, on virtual time."""

import asyncio
from random import Random

import pytest

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import run
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

AT = TopicPartition("a", 0)


async def silence(seed: int, fenced_after: float) -> float:
    """Freeze the leader, elect another after `fenced_after`; return the seconds to a record."""
    async with FakeCluster(Random(seed)) as cluster:
        cluster.add_topic("a", 1)
        session = KafkaClient(
            cluster.config(), patience_ms=0, randomness=Random(seed), opener=cluster.open
        )
        async with session:
            manager = FetchManager(
                session.brokers,
                session.cluster,
                FetchConfig(),
                EngineConfig(),
                randomness=Random(seed),
            )
            async with manager:
                channel = manager.channel()
                manager.reconcile({AT: FetchTarget(channel, 0)})
                records = aiter(Stream(channel))
                cluster.append(*AT, 1)
                await anext(records)
                cluster.freeze(1)
                await asyncio.sleep(fenced_after)
                cluster.move_leader(AT, 2)
                cluster.append(*AT, 1)
                elected = asyncio.get_running_loop().time()
                await anext(records)
                return asyncio.get_running_loop().time() - elected


@pytest.mark.parametrize("fenced_after", [2, 5, 5.4, 5.8, 6.2, 7, 9, 12, 40])
def test_the_new_leader_after_a_frozen_broker_is_found_within_a_second(fenced_after: float) -> None:
    """The connection is closed before the election, and the next connection fails after 5 s."""
    for seed in range(10):
        assert run(silence(seed, fenced_after), seed=seed) <= 1
