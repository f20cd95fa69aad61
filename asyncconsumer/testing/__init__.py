"""What this project tests itself with, for its users' tests as well.

`servers` starts real Kafka and ZooKeeper, `proxy` stands between a client and a server and makes
the faults of a network, `clock` runs asyncio on virtual time, `cluster` plays Kafka brokers there,
`registry` plays a schema registry, `plugin` is the pytest plugin.
"""
