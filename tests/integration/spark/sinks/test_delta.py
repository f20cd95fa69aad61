"""Delta tables that feeders of a real broker write."""

import asyncio
from pathlib import Path

from asyncconsumer.spark.sinks.delta import DeltaSink
from asyncconsumer.testing.handles import KafkaHandle
from tests.spark.sinks.test_delta import held
from tests.support.delta_runtime import delta_rs as delta_rs
from tests.support.feeder_tables import make_feeder
from tests.support.helpers import until
from tests.support.real_consumer import send


async def test_feeders_write_a_topic_to_a_delta_table(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(400), 3)
    async with make_feeder(kafka, topic, group, DeltaSink(str(tmp_path))) as feeder:
        await feeder.caught_up()
    await send(kafka, topic, range(400, 500), 3)
    async with (
        make_feeder(kafka, topic, group, DeltaSink(str(tmp_path))) as feeder,
        make_feeder(kafka, topic, group, DeltaSink(str(tmp_path))) as other,
    ):
        await until(lambda: len(feeder._state.feeds) + len(other._state.feeds) == 3)
        await until(lambda: asyncio.to_thread(lambda: len(held(tmp_path)) >= 500))
    assert held(tmp_path) == list(range(500))
