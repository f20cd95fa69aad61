"""Test support, for the tests of this project and of its users.

`servers` starts real Kafka and ZooKeeper. `proxy` injects network faults between a client and a
server. `virtual_time` runs asyncio on virtual time; `fake_kafka` and `fake_zookeeper` run there.
`registry` is a fake schema registry. `plugin` is the pytest plugin.
"""
