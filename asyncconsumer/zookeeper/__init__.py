"""ZooKeeper: one session that survives servers, watches as Events, and Kafka's znodes."""
