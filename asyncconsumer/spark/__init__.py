"""Kafka and Spark: `SparkFeeder`, from asyncio into a lake.

async with SparkFeeder(consumer, LandingFolder("landing/orders")) as feeder:
    await feeder.run()
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncconsumer.spark.batches import Batch as Batch
    from asyncconsumer.spark.delta import DeltaSink as DeltaSink
    from asyncconsumer.spark.feeder import FeederStats as FeederStats
    from asyncconsumer.spark.feeder import SparkFeeder as SparkFeeder
    from asyncconsumer.spark.landing import LandingFolder as LandingFolder
    from asyncconsumer.spark.sinks import Sink as Sink

__all__ = ["Batch", "DeltaSink", "FeederStats", "LandingFolder", "Sink", "SparkFeeder"]

# imported when it is asked for: each needs packages that the others do not
_HOMES: Final = {
    "Batch": "asyncconsumer.spark.batches",
    "DeltaSink": "asyncconsumer.spark.delta",
    "FeederStats": "asyncconsumer.spark.feeder",
    "LandingFolder": "asyncconsumer.spark.landing",
    "Sink": "asyncconsumer.spark.sinks",
    "SparkFeeder": "asyncconsumer.spark.feeder",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
