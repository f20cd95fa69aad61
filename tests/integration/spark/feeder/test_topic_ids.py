"""Re-created topics: their records must not be written after those of the old topic.

The new log may be as long as the old one, so offsets alone do not show the change.
"""

from pathlib import Path
from typing import Any

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.errors import SinkOffsetConflict
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.testing.handles import KafkaHandle
from tests.spark.feeder.test_topic_ids import of_both
from tests.support.delta_runtime import delta_rs as delta_rs
from tests.support.feeder_tables import make_feeder
from tests.support.real_consumer import send


async def test_a_re_created_topic_gets_another_txn_app_id(kafka: KafkaHandle) -> None:
    """Check the app id, because Delta skips versions up to the last one of an app id."""
    topic, group = await kafka.topic(), kafka.group()
    written = list[FeedBatch]()

    def write(_: object, batch: FeedBatch) -> None:
        written.append(batch)

    for count in (20, 10):
        await send(kafka, topic, range(count))
        async with make_feeder(kafka, topic, group, write=write) as feeder:
            await feeder.caught_up()
        await kafka.admin.delete_topic(topic)
        await kafka.admin.create_topic(topic)
    first, second = written
    assert (first.txn_version, second.txn_version) == (20, 10)
    assert first.txn_app_id != second.txn_app_id


@of_both
async def test_no_record_of_a_re_created_topic_is_written(
    kind: Any, kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group, folder = await kafka.topic(), kafka.group(), str(tmp_path / "sink")
    await send(kafka, topic, range(20))
    async with make_feeder(kafka, topic, group, kind(folder)) as feeder:
        await feeder.caught_up()
    await kafka.admin.delete_topic(topic)
    await kafka.admin.create_topic(topic)
    await send(kafka, topic, range(100, 150))
    with pytest.raises(SinkOffsetConflict, match="another topic of that name"):
        async with make_feeder(kafka, topic, group, kind(folder)) as feeder:
            await feeder.run()
    sink = kind(folder)
    sink.open()
    place = TopicPartition(topic, 0)
    assert sink.load([place]) == {place: 20}
