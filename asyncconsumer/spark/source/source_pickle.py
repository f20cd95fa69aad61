"""The pickled form of the data source: its options, and where its package is.

For a streaming query Spark starts a Python process on the driver. This process does not get the
files of `--py-files` or `addPyFile`. The process that created the source has them, on the same
machine. So the pickled source has the folders from which that process imported the package.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from asyncconsumer.spark.deploy.bootstrap import DEPENDENCIES
from asyncconsumer.spark.source.worker_process import STREAM_RUNNER

_FOLDER: Final = Path(__file__).resolve().parents[3]  # the one that has the package


def reduce_source(source: type, options: Mapping[str, str]) -> tuple[Callable[..., Any], Any]:
    """Return the result of `__reduce__` for a data source of the class `source`.

    The result contains the folder of this package, so another process can import the class.
    """
    folders = [str(_FOLDER)]
    if (dependencies := str(_FOLDER.with_name(DEPENDENCIES))) in sys.path:
        folders.append(dependencies)
    return _restore, (STREAM_RUNNER, folders, source.__module__, source.__qualname__, options)


def _restore(
    runner: str, folders: list[str], module: str, name: str, options: Mapping[str, str]
) -> Any:  # noqa: ANN401 - a data source
    """Import the class `name` from `module`, and return the data source with these options.

    In the Python process of a streaming query, which runs the module `runner`, the `folders` are
    added to `sys.path` first. This function must not use globals of its module.
    """
    import importlib
    import sys

    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == runner:
        sys.path += [folder for folder in folders if folder not in sys.path]
    return getattr(importlib.import_module(module), name)(options)


# cloudpickle writes the code of a function of `__main__`, instead of a reference to its module
_restore.__module__ = "__main__"
