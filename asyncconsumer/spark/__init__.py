"""A Kafka data source for Spark that needs no jar, and a feeder from a consumer to a sink.

spark.dataSource.register(KafkaSource)
spark.read.format("asyncconsumer").option("kafka.bootstrap.servers", ...).option("subscribe", ...)

async with SparkFeeder(consumer, LandingFolder("landing/orders")) as feeder:
    await feeder.run()
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncconsumer.spark.deploy.packaging import ship as ship
    from asyncconsumer.spark.feeder.batches import FeedBatch as FeedBatch
    from asyncconsumer.spark.feeder.feeder import FeederStats as FeederStats
    from asyncconsumer.spark.feeder.feeder import SparkFeeder as SparkFeeder
    from asyncconsumer.spark.sinks.delta import DeltaSink as DeltaSink
    from asyncconsumer.spark.sinks.iceberg import IcebergSink as IcebergSink
    from asyncconsumer.spark.sinks.landing import LandingFolder as LandingFolder
    from asyncconsumer.spark.sinks.protocol import Sink as Sink
    from asyncconsumer.spark.source.lag_listener import LagListener as LagListener
    from asyncconsumer.spark.source.lag_listener import TopicLag as TopicLag
    from asyncconsumer.spark.source.offsets import lag as lag
    from asyncconsumer.spark.source.source import KafkaSource as KafkaSource

__all__ = [
    "DeltaSink",
    "FeedBatch",
    "FeederStats",
    "IcebergSink",
    "KafkaSource",
    "LagListener",
    "LandingFolder",
    "Sink",
    "SparkFeeder",
    "TopicLag",
    "lag",
    "ship",
]

# imported on first use, because each needs packages that the others do not
_MODULES: Final = {
    "FeedBatch": "asyncconsumer.spark.feeder.batches",
    "DeltaSink": "asyncconsumer.spark.sinks.delta",
    "FeederStats": "asyncconsumer.spark.feeder.feeder",
    "IcebergSink": "asyncconsumer.spark.sinks.iceberg",
    "KafkaSource": "asyncconsumer.spark.source.source",
    "LagListener": "asyncconsumer.spark.source.lag_listener",
    "LandingFolder": "asyncconsumer.spark.sinks.landing",
    "Sink": "asyncconsumer.spark.sinks.protocol",
    "SparkFeeder": "asyncconsumer.spark.feeder.feeder",
    "TopicLag": "asyncconsumer.spark.source.lag_listener",
    "lag": "asyncconsumer.spark.source.offsets",
    "ship": "asyncconsumer.spark.deploy.packaging",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
