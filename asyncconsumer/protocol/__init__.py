"""The requests and responses of the Kafka protocol, as bytes. No I/O."""
