"""A ZooKeeper for virtual time: an ensemble in memory that loses, freezes and expires on demand.

```python
@simulated(seeds=range(1000))
async def test_a_claim_outlives_a_lost_answer() -> None:
    fake = FakeZooKeeper(servers=3, randomness=Random(7))
    config = ZooKeeperConfig(zookeeper_connect=fake.connect)
    async with ZooKeeperSession(config, randomness=Random(1), opener=fake.open) as session:
        fake.on_write = lambda session_id, request: Fate.LOST_AFTER
        ...
```

It stands in below `zk.line`: no bytes are made, and all of the session's own code runs. With a
`lag` servers see what others committed after a while, as real followers do: a read may be behind
until `sync`. Access lists are not kept.
"""

from asyncconsumer.testing.fake_zookeeper.ensemble import FakeClient, FakeZooKeeper, Fate
from asyncconsumer.testing.fake_zookeeper.transport import FakeLine
from asyncconsumer.testing.fake_zookeeper.tree import Tree

__all__ = ["FakeClient", "FakeLine", "FakeZooKeeper", "Fate", "Tree"]
