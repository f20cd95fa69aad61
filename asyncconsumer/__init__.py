"""An asyncio-native Kafka consumer framework, with a data pipeline on Spark."""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncconsumer.admin.admin import Admin
    from asyncconsumer.admin.diagnosis.diagnose import diagnose
    from asyncconsumer.admin.diagnosis.finding import Finding
    from asyncconsumer.admin.results import (
        AclEntry,
        BrokerDescription,
        ConfigEntry,
        ConsumerGroupDescription,
        GroupLag,
        GroupListing,
        LogRange,
        MemberDescription,
        OffsetChange,
        PartitionDescription,
        PartitionLag,
        TopicDescription,
    )
    from asyncconsumer.auth.azure import AzureEntra
    from asyncconsumer.auth.msk import MskIam
    from asyncconsumer.auth.oidc import Oidc
    from asyncconsumer.config import ClassicConfig, ConsumerConfig, ProducerConfig
    from asyncconsumer.config.options import (
        AdminOptions,
        AppOptions,
        ClassicOptions,
        ConsumerOptions,
        ProducerOptions,
        ReaderOptions,
    )
    from asyncconsumer.consumer.connector import ConsumerConnector
    from asyncconsumer.consumer.connector_listener import RebalanceListener
    from asyncconsumer.consumer.consumer import Consumer
    from asyncconsumer.consumer.health import Health, HealthState
    from asyncconsumer.consumer.interceptors import Interceptor
    from asyncconsumer.consumer.listener import ConsumerRebalanceListener
    from asyncconsumer.consumer.ranges import RangeReader
    from asyncconsumer.consumer.simple import FetchResult, SimpleConsumer
    from asyncconsumer.consumer.stream import ConsumerStream
    from asyncconsumer.consumer.transactions import TransactionalProducer
    from asyncconsumer.errors import ClosedError, ConfigError, ConsumerError, CorruptRecords
    from asyncconsumer.events import (
        Event,
        EventStream,
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
    from asyncconsumer.fetch.direct.partition_stream import PartitionStream
    from asyncconsumer.fetch.manager import Progress
    from asyncconsumer.group.assignors import Assignor
    from asyncconsumer.group.assignors.protocol import MemberSubscription
    from asyncconsumer.group.zookeeper.filters import Blacklist, TopicFilter, Whitelist
    from asyncconsumer.handlers.app import ConsumerApp
    from asyncconsumer.handlers.app_settings import AppKeywords
    from asyncconsumer.handlers.batches import Batch
    from asyncconsumer.handlers.context import Context
    from asyncconsumer.handlers.declarations import Router
    from asyncconsumer.handlers.draining import Drained
    from asyncconsumer.handlers.health import AppHealth, AppState, HandlerHealth
    from asyncconsumer.handlers.markers import Depends, Header, Key, State, Value
    from asyncconsumer.handlers.middleware import CallNext, Middleware
    from asyncconsumer.handlers.outgoing import OutgoingRecord, PublishMiddleware, PublishNext
    from asyncconsumer.handlers.publishing import Outgoing, Publish
    from asyncconsumer.handlers.retry import Retry
    from asyncconsumer.net.metadata import Leader
    from asyncconsumer.offsets.store import OffsetStore
    from asyncconsumer.producer.batch import RecordDelivery, RecordMetadata
    from asyncconsumer.producer.producer import Producer
    from asyncconsumer.producer.transactions import Transaction
    from asyncconsumer.protocol.messages import EARLIEST, LATEST
    from asyncconsumer.records.decoding import Record, Records
    from asyncconsumer.streams.messages import Message, MessageStream
    from asyncconsumer.streams.stream import Stream
    from asyncconsumer.types import (
        Address,
        GroupMetadata,
        Offset,
        OffsetAndTimestamp,
        OffsetRange,
        TopicPartition,
    )
    from asyncconsumer.web.status import Status

__all__ = [
    "EARLIEST",
    "LATEST",
    "AclEntry",
    "Address",
    "Admin",
    "AdminOptions",
    "AppHealth",
    "AppKeywords",
    "AppOptions",
    "AppState",
    "Assignor",
    "AzureEntra",
    "Batch",
    "Blacklist",
    "BrokerDescription",
    "CallNext",
    "ClassicConfig",
    "ClassicOptions",
    "ClosedError",
    "ConfigEntry",
    "ConfigError",
    "Consumer",
    "ConsumerApp",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerError",
    "ConsumerGroupDescription",
    "ConsumerOptions",
    "ConsumerRebalanceListener",
    "ConsumerStream",
    "Context",
    "CorruptRecords",
    "Depends",
    "Drained",
    "Event",
    "EventStream",
    "FetchResult",
    "Finding",
    "GroupLag",
    "GroupListing",
    "GroupMetadata",
    "HandlerHealth",
    "Header",
    "Health",
    "HealthState",
    "Interceptor",
    "Key",
    "Leader",
    "LogRange",
    "MemberDescription",
    "MemberSubscription",
    "Message",
    "MessageStream",
    "Middleware",
    "MskIam",
    "Offset",
    "OffsetAndTimestamp",
    "OffsetChange",
    "OffsetRange",
    "OffsetStore",
    "Oidc",
    "Outgoing",
    "OutgoingRecord",
    "PartitionDescription",
    "PartitionLag",
    "PartitionStream",
    "Producer",
    "ProducerConfig",
    "ProducerOptions",
    "Progress",
    "Publish",
    "PublishMiddleware",
    "PublishNext",
    "RangeReader",
    "ReaderOptions",
    "RebalanceListener",
    "Rebalanced",
    "Record",
    "RecordAbandoned",
    "RecordDelivery",
    "RecordMetadata",
    "RecordUnreadable",
    "Records",
    "Recovered",
    "Recreated",
    "Retried",
    "Retry",
    "Router",
    "SimpleConsumer",
    "Skipped",
    "Stalled",
    "State",
    "Status",
    "Stream",
    "TopicDescription",
    "TopicFilter",
    "TopicPartition",
    "Transaction",
    "TransactionalProducer",
    "Truncated",
    "Value",
    "Whitelist",
    "diagnose",
]
__version__ = "0.1.0"

# imported on first use, because a Spark worker needs no group and no ZooKeeper
_MODULES: Final = {
    "admin.admin": ("Admin",),
    "admin.diagnosis.diagnose": ("diagnose",),
    "admin.diagnosis.finding": ("Finding",),
    "admin.results": (
        "AclEntry",
        "BrokerDescription",
        "ConfigEntry",
        "ConsumerGroupDescription",
        "GroupLag",
        "GroupListing",
        "LogRange",
        "MemberDescription",
        "OffsetChange",
        "PartitionDescription",
        "PartitionLag",
        "TopicDescription",
    ),
    "auth.azure": ("AzureEntra",),
    "auth.msk": ("MskIam",),
    "auth.oidc": ("Oidc",),
    "config": (
        "ClassicConfig",
        "ConsumerConfig",
        "ProducerConfig",
    ),
    "config.options": (
        "AdminOptions",
        "AppOptions",
        "ClassicOptions",
        "ConsumerOptions",
        "ProducerOptions",
        "ReaderOptions",
    ),
    "consumer.connector": ("ConsumerConnector",),
    "consumer.connector_listener": ("RebalanceListener",),
    "consumer.consumer": ("Consumer",),
    "consumer.health": (
        "Health",
        "HealthState",
    ),
    "consumer.interceptors": ("Interceptor",),
    "consumer.listener": ("ConsumerRebalanceListener",),
    "consumer.ranges": ("RangeReader",),
    "consumer.simple": (
        "FetchResult",
        "SimpleConsumer",
    ),
    "consumer.stream": ("ConsumerStream",),
    "consumer.transactions": ("TransactionalProducer",),
    "errors": (
        "ClosedError",
        "ConfigError",
        "ConsumerError",
        "CorruptRecords",
    ),
    "events": (
        "Event",
        "EventStream",
        "Rebalanced",
        "RecordAbandoned",
        "RecordUnreadable",
        "Recovered",
        "Recreated",
        "Retried",
        "Skipped",
        "Stalled",
        "Truncated",
    ),
    "fetch.direct.partition_stream": ("PartitionStream",),
    "fetch.manager": ("Progress",),
    "group.assignors": ("Assignor",),
    "group.assignors.protocol": ("MemberSubscription",),
    "group.zookeeper.filters": (
        "Blacklist",
        "TopicFilter",
        "Whitelist",
    ),
    "handlers.app": ("ConsumerApp",),
    "handlers.app_settings": ("AppKeywords",),
    "handlers.batches": ("Batch",),
    "handlers.context": ("Context",),
    "handlers.declarations": ("Router",),
    "handlers.draining": ("Drained",),
    "handlers.health": (
        "AppHealth",
        "AppState",
        "HandlerHealth",
    ),
    "handlers.markers": (
        "Depends",
        "Header",
        "Key",
        "State",
        "Value",
    ),
    "handlers.middleware": (
        "CallNext",
        "Middleware",
    ),
    "handlers.outgoing": (
        "OutgoingRecord",
        "PublishMiddleware",
        "PublishNext",
    ),
    "handlers.publishing": (
        "Outgoing",
        "Publish",
    ),
    "handlers.retry": ("Retry",),
    "net.metadata": ("Leader",),
    "offsets.store": ("OffsetStore",),
    "producer.batch": (
        "RecordDelivery",
        "RecordMetadata",
    ),
    "producer.producer": ("Producer",),
    "producer.transactions": ("Transaction",),
    "protocol.messages": (
        "EARLIEST",
        "LATEST",
    ),
    "records.decoding": (
        "Record",
        "Records",
    ),
    "streams.messages": (
        "Message",
        "MessageStream",
    ),
    "streams.stream": ("Stream",),
    "types": (
        "Address",
        "GroupMetadata",
        "Offset",
        "OffsetAndTimestamp",
        "OffsetRange",
        "TopicPartition",
    ),
    "web.status": ("Status",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
