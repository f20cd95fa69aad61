"""The newer KafkaConsumer, asynchronously: groups that Kafka coordinates, or partitions by hand."""

from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.health import Health, HealthState
from asyncconsumer.consumer.interceptors import Interceptor
from asyncconsumer.consumer.listener import ConsumerRebalanceListener

__all__ = ["Consumer", "ConsumerRebalanceListener", "Health", "HealthState", "Interceptor"]
