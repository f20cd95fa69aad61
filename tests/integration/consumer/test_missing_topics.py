"""Topics that do not exist are created only on request."""

from asyncconsumer import TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from tests.support import real_consumer as real
from tests.support.helpers import until


async def test_a_topic_is_created_only_with_allow_auto_create_topics(kafka: KafkaHandle) -> None:
    name = f"{await kafka.topic()}-created"
    async with real.make_consumer(kafka, name, group_id=kafka.group()) as consumer:
        assert await consumer.wait_assigned() == frozenset()
        assert name not in await consumer.topics()
    async with real.make_consumer(
        kafka, name, group_id=kafka.group(), allow_auto_create_topics=True
    ) as consumer:
        await until(lambda: consumer.assignment == {TopicPartition(name, 0)})
        await until(lambda: consumer.health().ready)
        assert name in await consumer.topics()
