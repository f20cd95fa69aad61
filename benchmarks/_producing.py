"""librdkafka's producer, without records that its full queue refuses."""

from confluent_kafka import Producer

_SECONDS: float = 0.1  # to serve callbacks, which make room


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
