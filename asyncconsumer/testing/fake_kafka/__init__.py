"""A fake Kafka cluster for virtual time, cheap enough for thousands of schedules.

```python
@simulated(seeds=range(1000))
async def test_nothing_is_lost_when_leaders_move() -> None:
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("orders", 2)
        cluster.append("orders", 0, 10)
        async with Brokers(cluster.config(), randomness=Random(2), opener=cluster.open) as brokers:
            cluster.kill(cluster.leader(TopicPartition("orders", 0)))
```

The production code runs on it unchanged, because only the socket is fake. A test compares the
responses of the fake with those of a real broker. More APIs are added as `Handler` objects by API
key: `handlers={**HANDLERS, 11: JOIN_GROUP}`.
"""

from asyncconsumer.testing.fake_kafka.broker import FakeBroker, Fate, Handler, Request, State
from asyncconsumer.testing.fake_kafka.fake import HANDLERS, FakeCluster
from asyncconsumer.testing.fake_kafka.log import RecordPayload
from asyncconsumer.testing.fake_kafka.tables import handler

__all__ = [
    "HANDLERS",
    "FakeBroker",
    "FakeCluster",
    "Fate",
    "Handler",
    "RecordPayload",
    "Request",
    "State",
    "handler",
]
