"""A ZooKeeper client: a session across servers, watches as events, and Kafka's znodes."""
