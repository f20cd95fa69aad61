"""An asyncio-native Kafka consumer framework, with its data pipeline on Spark."""

from asyncconsumer.errors import ClosedError, ConfigError, ConsumerError, CorruptRecords
from asyncconsumer.model import TopicPartition
from asyncconsumer.ranges import OffsetRange, RangeReader
from asyncconsumer.simple import SimpleConsumer
from asyncconsumer.wire.accel import Record
from asyncconsumer.wire.messages import EARLIEST, LATEST

__all__ = [
    "EARLIEST",
    "LATEST",
    "ClosedError",
    "ConfigError",
    "ConsumerError",
    "CorruptRecords",
    "OffsetRange",
    "RangeReader",
    "Record",
    "SimpleConsumer",
    "TopicPartition",
]
__version__ = "0.1.0"
