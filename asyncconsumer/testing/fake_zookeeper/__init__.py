"""A fake ZooKeeper ensemble for virtual time, with faults on demand.

```python
@simulated(seeds=range(1000))
async def test_a_claim_outlives_a_lost_answer() -> None:
    fake = FakeZooKeeper(servers=3, randomness=Random(7))
    config = ZooKeeperConfig(zookeeper_connect=fake.connect)
    async with ZooKeeperSession(config, randomness=Random(1), opener=fake.open) as session:
        fake.on_write = lambda session_id, request: Fate.LOST_AFTER
        ...
```

It replaces the transport of `asyncconsumer.zookeeper`: no bytes are encoded, and all code of the
session runs. With a `lag`, servers see commits of others later, as real followers do: a read may be
stale until `sync`. It has no access lists.
"""

from asyncconsumer.testing.fake_zookeeper.ensemble import FakeClient, FakeZooKeeper, Fate
from asyncconsumer.testing.fake_zookeeper.transport import FakeZooKeeperTransport
from asyncconsumer.testing.fake_zookeeper.tree import Tree

__all__ = ["FakeClient", "FakeZooKeeper", "FakeZooKeeperTransport", "Fate", "Tree"]
