"""An asyncio-native Kafka consumer framework, with its data pipeline on Spark."""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncconsumer.connector import ConsumerConnector, RebalanceListener
    from asyncconsumer.consumer import Consumer, ConsumerRebalanceListener, Interceptor
    from asyncconsumer.errors import ClosedError, ConfigError, ConsumerError, CorruptRecords
    from asyncconsumer.fetch.events import (
        GivenUp,
        Poisoned,
        Rebalanced,
        Recovered,
        Recreated,
        Retried,
        Skipped,
        Stalled,
        Truncated,
    )
    from asyncconsumer.group.filters import Blacklist, Whitelist
    from asyncconsumer.model import Offset, OffsetAndTimestamp, OffsetRange, TopicPartition
    from asyncconsumer.ranges import RangeReader
    from asyncconsumer.simple import SimpleConsumer
    from asyncconsumer.streams.messages import Message
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
    "GivenUp",
    "Interceptor",
    "Key",
    "Message",
    "Offset",
    "OffsetAndTimestamp",
    "OffsetRange",
    "Poisoned",
    "RangeReader",
    "RebalanceListener",
    "Rebalanced",
    "Record",
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

# imported when they are asked for: a Spark worker that reads ranges needs no group, no ZooKeeper
_HOMES: Final = {
    "connector": ("ConsumerConnector", "RebalanceListener"),
    "consumer": ("Consumer", "ConsumerRebalanceListener", "Interceptor"),
    "errors": ("ClosedError", "ConfigError", "ConsumerError", "CorruptRecords"),
    "fetch.events": (
        "GivenUp",
        "Poisoned",
        "Rebalanced",
        "Recovered",
        "Recreated",
        "Retried",
        "Skipped",
        "Stalled",
        "Truncated",
    ),
    "group.filters": ("Blacklist", "Whitelist"),
    "model": ("Offset", "OffsetAndTimestamp", "OffsetRange", "TopicPartition"),
    "ranges": ("RangeReader",),
    "simple": ("SimpleConsumer",),
    "streams.messages": ("Message",),
    "wire.accel": ("Record",),
    "wire.messages": ("EARLIEST", "LATEST"),
    "work.app": ("ConsumerApp",),
    "work.arguments": ("Key", "Value"),
    "work.batches": ("Batch",),
    "work.retry": ("Retry",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
