"""Feeders that are killed, or frozen for longer than their session: each record once."""

import asyncio
import signal
from pathlib import Path
from random import Random

import pytest

from asyncconsumer.testing.handles import KafkaHandle
from tests.support.delta_runtime import delta_rs as delta_rs
from tests.support.feeder_tables import repeated
from tests.support.helpers import until
from tests.support.iceberg_tables import pyiceberg_threads as pyiceberg_threads
from tests.support.kills.feeder import PARTITIONS, SINKS, Feeders, kills, place_of
from tests.support.real_consumer import send
from tests.support.s3_server import built


@pytest.mark.parametrize("kind", SINKS)
async def test_each_record_is_written_once_though_feeders_are_killed(
    kafka: KafkaHandle, tmp_path: Path, kind: str
) -> None:
    if kind == "s3" and built() is None:
        pytest.skip("the S3 server is not built: run `make s3`")
    topic, group = await kafka.topic(partitions=PARTITIONS), kafka.group()
    servers = kafka.bootstrap_servers
    with (
        place_of(kind, tmp_path) as place,
        Feeders(servers, topic, group, kind, *place) as feeders,
    ):
        await kills(kafka, feeders, 1, Random(kind))


async def test_a_frozen_feeder_writes_no_batch_of_lost_partitions(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(3000))
    with Feeders(kafka.bootstrap_servers, topic, group, "landing", tmp_path) as feeders:
        feeders.start("zombie", "slow landing", static=False)
        await until(lambda: feeders.files() > 0)
        feeders.signal("zombie", signal.SIGSTOP)
        before = feeders.files()
        assert before < 60  # of 75: the next batches are in flight
        feeders.start("other", static=False)
        await until(lambda: feeders.files() > before)  # after the session of the frozen feeder
        await until(lambda: len(feeders.held()) >= 3000)
        feeders.signal("zombie", signal.SIGCONT)
        await send(kafka, topic, range(3000, 3500))
        await until(lambda: len(set(feeders.held())) == 3500)
        await asyncio.sleep(0.5)  # a write of a batch in flight would be finished by now
        values = feeders.held()
    assert repeated(values) == []
    assert values == list(range(3500))
