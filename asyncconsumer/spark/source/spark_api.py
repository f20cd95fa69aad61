"""Classes of pyspark that older versions lack.

Spark 4.0 has no filter pushdown. Spark 4.0 and 4.1 do not pass the start of a micro-batch to a
Python source, which therefore cannot limit the micro-batch. Empty classes replace the missing ones,
so that the modules of the source can be imported.
"""

from typing import TYPE_CHECKING, Final

import pyspark

VERSION: Final = pyspark.__version__

if TYPE_CHECKING:
    from pyspark.sql.datasource import EqualTo as EqualTo
    from pyspark.sql.datasource import Filter as Filter
    from pyspark.sql.datasource import GreaterThan as GreaterThan
    from pyspark.sql.datasource import GreaterThanOrEqual as GreaterThanOrEqual
    from pyspark.sql.datasource import In as In
    from pyspark.sql.datasource import IsNotNull as IsNotNull
    from pyspark.sql.datasource import LessThan as LessThan
    from pyspark.sql.datasource import LessThanOrEqual as LessThanOrEqual
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import ReadMinRows as ReadMinRows
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as SupportsTriggerAvailableNow,
    )

    LIMITS_BATCHES: bool
else:
    from pyspark.sql import datasource

    for _name in (
        "EqualTo",
        "Filter",
        "GreaterThan",
        "GreaterThanOrEqual",
        "In",
        "IsNotNull",
        "LessThan",
        "LessThanOrEqual",
    ):
        globals()[_name] = getattr(datasource, _name, None) or type(_name, (), {})
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )

        LIMITS_BATCHES = True  # whether Spark passes a start and a limit to `latestOffset`
    except ImportError:
        ReadLimit = type("ReadLimit", (), {})
        ReadAllAvailable = type("ReadAllAvailable", (ReadLimit,), {})
        ReadMaxRows = type("ReadMaxRows", (ReadLimit,), {})
        ReadMinRows = type("ReadMinRows", (ReadLimit,), {})
        SupportsTriggerAvailableNow = type("SupportsTriggerAvailableNow", (), {})
        LIMITS_BATCHES = False
