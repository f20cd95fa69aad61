"""Kafka and Spark: `KafkaSource`, a data source that needs no jar.

spark.dataSource.register(KafkaSource)
spark.read.format("asyncconsumer").option("kafka.bootstrap.servers", ...).option("subscribe", ...)
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncconsumer.spark.progress import lag as lag
    from asyncconsumer.spark.source import KafkaSource as KafkaSource

__all__ = ["KafkaSource", "lag"]

# imported when it is asked for: a Python worker of Spark's loads what it reads with, no more
_HOMES: Final = {
    "KafkaSource": "asyncconsumer.spark.source",
    "lag": "asyncconsumer.spark.progress",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
