"""The Python process of Spark's that we are called in: which one it is, and what it need not do.

Spark has each of its workers look for garbage after whatever it did, in all that was ever imported:
50 ms of CPU for every query that is planned. What was imported is none.
"""

import gc
import sys
from typing import Final

_WORKERS: Final = "pyspark.daemon"  # what they are forked from, and where garbage is looked for
_settled = 0  # modules that there were when this was last said


def runs(program: str) -> bool:
    """Whether this process runs a module of pyspark's, or has loaded it to run it."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program in sys.modules or getattr(main, "name", None) == program


def settle() -> None:
    """Have a worker look no more at what it has loaded by now; elsewhere, do nothing."""
    global _settled
    if len(sys.modules) > _settled and runs(_WORKERS):
        _settled = len(sys.modules)
        gc.freeze()
