"""The doors to Spark: what feeds a lake from asyncio. Needs the extras of what is used."""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncconsumer.spark.batches import Batch as Batch
    from asyncconsumer.spark.delta import DeltaSink as DeltaSink
    from asyncconsumer.spark.feeder import SparkFeeder as SparkFeeder
    from asyncconsumer.spark.landing import LandingFolder as LandingFolder

_PLACES: Final = {  # imported when asked for: each needs packages that the others do not
    "Batch": "batches",
    "DeltaSink": "delta",
    "LandingFolder": "landing",
    "SparkFeeder": "feeder",
}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever it is
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
