"""The Spark Python process that runs this code: which one it is, and its garbage collection.

PySpark runs `gc.collect()` in its workers after each task and plan. Freezing the imported modules
saves about 50 ms of CPU per query.
"""

import gc
import sys
from typing import Final

_WORKERS: Final = "pyspark.daemon"  # the parent of workers, which run `gc.collect()`
_settled = 0  # number of modules at the last freeze


def runs(program: str) -> bool:
    """Return whether this process runs a module of pyspark, or has imported it."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program in sys.modules or getattr(main, "name", None) == program


def settle() -> None:
    """Exclude all loaded modules from garbage collection. Does nothing outside of workers."""
    global _settled
    if len(sys.modules) > _settled and runs(_WORKERS):
        _settled = len(sys.modules)
        gc.freeze()
