"""An asyncio-native Kafka consumer framework, with its data pipeline on Spark."""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncconsumer.consumer.connector import ConsumerConnector
    from asyncconsumer.consumer.connector_listener import RebalanceListener
    from asyncconsumer.consumer.consumer import Consumer
    from asyncconsumer.consumer.interceptors import Interceptor
    from asyncconsumer.consumer.listener import ConsumerRebalanceListener
    from asyncconsumer.consumer.ranges import RangeReader
    from asyncconsumer.consumer.simple import SimpleConsumer
    from asyncconsumer.errors import ClosedError, ConfigError, ConsumerError, CorruptRecords
    from asyncconsumer.events import (
        Rebalanced,
        RecordAbandoned,
        RecordUnreadable,
        Recovered,
        Recreated,
        Retried,
        Skipped,
        Stalled,
        Truncated,
    )
    from asyncconsumer.group.zookeeper.filters import Blacklist, Whitelist
    from asyncconsumer.handlers.app import ConsumerApp
    from asyncconsumer.handlers.arguments import Key, Value
    from asyncconsumer.handlers.batches import Batch
    from asyncconsumer.handlers.retry import Retry
    from asyncconsumer.protocol.messages import EARLIEST, LATEST
    from asyncconsumer.records.decoding import Record
    from asyncconsumer.streams.messages import Message
    from asyncconsumer.types import Offset, OffsetAndTimestamp, OffsetRange, TopicPartition

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
    "Message",
    "Offset",
    "OffsetAndTimestamp",
    "OffsetRange",
    "RangeReader",
    "RebalanceListener",
    "Rebalanced",
    "Record",
    "RecordAbandoned",
    "RecordUnreadable",
    "Recovered",
    "Recreated",
    "Retried",
    "Retry",
    "SimpleConsumer",
    "Skipped",
    "Stalled",
    "TopicPartition",
    "Truncated",
    "Value",
    "Whitelist",
]
__version__ = "0.1.0"

# imported on first use, because a Spark worker needs no group and no ZooKeeper
_HOMES: Final = {
    "consumer.connector": ("ConsumerConnector",),
    "consumer.connector_listener": ("RebalanceListener",),
    "consumer.consumer": ("Consumer",),
    "consumer.interceptors": ("Interceptor",),
    "consumer.listener": ("ConsumerRebalanceListener",),
    "errors": ("ClosedError", "ConfigError", "ConsumerError", "CorruptRecords"),
    "events": (
        "RecordAbandoned",
        "RecordUnreadable",
        "Rebalanced",
        "Recovered",
        "Recreated",
        "Retried",
        "Skipped",
        "Stalled",
        "Truncated",
    ),
    "group.zookeeper.filters": ("Blacklist", "Whitelist"),
    "types": ("Offset", "OffsetAndTimestamp", "OffsetRange", "TopicPartition"),
    "consumer.ranges": ("RangeReader",),
    "consumer.simple": ("SimpleConsumer",),
    "streams.messages": ("Message",),
    "records.decoding": ("Record",),
    "protocol.messages": ("EARLIEST", "LATEST"),
    "handlers.app": ("ConsumerApp",),
    "handlers.arguments": ("Key", "Value"),
    "handlers.batches": ("Batch",),
    "handlers.retry": ("Retry",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
