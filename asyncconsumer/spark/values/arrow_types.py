"""The Arrow types of Spark columns, for all versions of pyspark. Timestamps are in UTC."""

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def arrow_type(kind: "DataType") -> "pa.DataType":
    """Return the Arrow type of a Spark type."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, **_zone(to_arrow_type))


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """Return the Arrow schema of a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, **_zone(to_arrow_schema))


def _zone(convert: "Callable[..., object]") -> dict[str, Any]:
    """Return the keyword argument of `convert` that selects UTC.

    Return no argument before Spark 4.2, in which `convert` always uses UTC.
    """
    return {"timezone": "UTC"} if "timezone" in inspect.signature(convert).parameters else {}
