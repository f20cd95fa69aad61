"""An asyncio-native Kafka consumer framework, with its data pipeline on Spark."""

from asyncconsumer.errors import ClosedError, ConfigError, ConsumerError
from asyncconsumer.model import TopicPartition

__all__ = ["ClosedError", "ConfigError", "ConsumerError", "TopicPartition"]
__version__ = "0.1.0"
