"""The representation of a consumer as text, and of its health and status as JSON."""

import asyncio
import json
from random import Random

import pytest

from asyncconsumer import Consumer, ConsumerApp, TopicPartition
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("consumer", "reads"),
    [
        (Consumer("b", "a", bootstrap_servers="k:1", group_id="g"), "topics (a, b), group_id='g'"),
        (
            Consumer(pattern="a.*", bootstrap_servers="k:1", group_id="g"),
            "a pattern (topics that match 'a.*'), group_id='g'",
        ),
        (
            Consumer(partitions=[TopicPartition("a", 0)], bootstrap_servers="k:1"),
            "1 manually assigned partitions, group_id=None",
        ),
        (Consumer(bootstrap_servers="k:1", group_id="g"), "no subscription, group_id='g'"),
    ],
)
def test_the_repr_of_a_consumer_names_its_topics_and_group(consumer: Consumer, reads: str) -> None:
    assert repr(consumer) == f"<Consumer of {reads}, not open>"


def test_the_repr_of_an_app_names_its_group_and_state() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    assert repr(app) == "<ConsumerApp group_id='g', new>"


@simulated([1])
async def test_health_and_status_are_json() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 2)
        cluster.append("t", 0, 3)
        async with make_consumer(cluster, ("t",)) as consumer:
            await consumer.wait_assigned()
            assert "2 partitions assigned" in repr(consumer)
            await anext(consumer.__aiter__())
            await until(lambda: consumer.health().lag.get(TopicPartition("t", 0)) is not None)
            await asyncio.sleep(0)
            health = json.loads(json.dumps(consumer.health().as_dict()))
            assert health["state"] == "consuming"
            assert (health["ready"], health["live"], health["reason"]) == (True, True, None)
            assert health["assignment"] == {"t": [0, 1]}
            assert health["lag"]["t"]["0"] == 2
            status = json.loads(json.dumps(consumer.status().as_dict()))
            assert status["state"] == "consuming"
            assert status["lag"] == health["lag"]
