"""An asyncio-native Kafka consumer framework, with its data pipeline on Spark."""

from asyncconsumer.connector import ConsumerConnector, RebalanceListener
from asyncconsumer.consumer import Consumer, ConsumerRebalanceListener, Interceptor
from asyncconsumer.errors import ClosedError, ConfigError, ConsumerError, CorruptRecords
from asyncconsumer.group.filters import Blacklist, Whitelist
from asyncconsumer.model import Offset, TopicPartition
from asyncconsumer.ranges import OffsetRange, RangeReader
from asyncconsumer.simple import SimpleConsumer
from asyncconsumer.wire.accel import Record
from asyncconsumer.wire.messages import EARLIEST, LATEST
from asyncconsumer.work.app import ConsumerApp
from asyncconsumer.work.arguments import Key, Value
from asyncconsumer.work.batches import Batch
from asyncconsumer.work.retry import Retry

__all__ = [
    "EARLIEST",
    "LATEST",
    "Batch",
    "Blacklist",
    "ClosedError",
    "ConfigError",
    "Consumer",
    "ConsumerApp",
    "ConsumerConnector",
    "ConsumerError",
    "ConsumerRebalanceListener",
    "CorruptRecords",
    "Interceptor",
    "Key",
    "Offset",
    "OffsetRange",
    "RangeReader",
    "RebalanceListener",
    "Record",
    "Retry",
    "SimpleConsumer",
    "TopicPartition",
    "Value",
    "Whitelist",
]
__version__ = "0.1.0"
