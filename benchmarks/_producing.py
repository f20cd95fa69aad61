"""Sending with librdkafka's producer, with waits while the producer's queue is full."""

from confluent_kafka import Producer

_SECONDS: float = 0.1  # for callbacks of acknowledged records, which free places in the queue


def produce(
    producer: Producer, topic: str, value: bytes, key: bytes | None = None, partition: int = 0
) -> None:
    """Queue a record. While the queue is full, wait until the broker has acknowledged some."""
    while True:
        try:
            producer.produce(topic, value, key, partition)
        except BufferError:
            producer.poll(_SECONDS)
        else:
            return
