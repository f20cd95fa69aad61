"""The lag of a streaming query, which Spark does not let a Python source report itself."""

import json
from collections.abc import Mapping
from typing import Any

from asyncconsumer.spark.source.offsets import from_json


def lag(progress: Any) -> dict[str, float]:  # noqa: ANN401 - pyspark's progress, or its JSON as a dict
    """Return the lag of a query's Kafka partitions, with the names of Spark's own source.

    ``lag(query.lastProgress)`` gives ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and
    ``avgOffsetsBehindLatest``. The result is empty if the query has no offsets yet.
    """
    told = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    behind = []
    for source in told["sources"]:
        latest, done = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        behind += [max(0, end - done.get(one, 0)) for one, end in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offsets(told: Any) -> Mapping[Any, int]:  # noqa: ANN401 - a dict, its JSON, or nothing
    """Parse Kafka offsets. Return nothing for other sources, whose offsets have any form."""
    try:
        return from_json(json.loads(told) if isinstance(told, str) else told)
    except (AttributeError, ValueError):
        return {}
