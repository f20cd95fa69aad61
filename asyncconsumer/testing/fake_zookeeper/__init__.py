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

The fake replaces the transport of `asyncconsumer.zookeeper`: no bytes are encoded, and the session
runs its production code. With a `lag`, servers see commits of other servers later, as real
followers do, so a read may be stale until `sync`. The fake has no access lists (ACLs).
"""

from asyncconsumer.testing.fake_zookeeper.ensemble import FakeClient, FakeZooKeeper, Fate
from asyncconsumer.testing.fake_zookeeper.transport import FakeZooKeeperTransport
from asyncconsumer.testing.fake_zookeeper.tree import Tree

__all__ = ["FakeClient", "FakeZooKeeper", "FakeZooKeeperTransport", "Fate", "Tree"]
