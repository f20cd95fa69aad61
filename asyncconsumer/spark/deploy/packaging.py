"""The package for the executors of a cluster, in one file, compiled decoder and all.

    ship(spark)
    spark.read.format("asyncconsumer")  # as on one machine

or, for `spark-submit` and its like, which want the file beforehand:

    $ asyncconsumer spark-package asyncconsumer.zip
    $ spark-submit --py-files asyncconsumer.zip job.py

For a streaming query Spark starts a Python on the driver, too, and gives it none of these files:
where the package is not installed there, set `PYTHONPATH=asyncconsumer.zip` before `spark-submit`.

The archive brings what the package needs as well, but not pyarrow, which Spark's own Python workers
need, and which executors must have. It is for machines and a Python like those that it was made on.
Elsewhere executors need the dependencies themselves, and decode in pure Python: 8 us a record where
the compiled decoder takes 0.06. Each of their workers says so, once, in the executor's log.
"""

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import Requirement

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.deploy import bootstrap
from asyncconsumer.spark.deploy.bootstrap import interpreter as interpreter
from asyncconsumer.spark.sinks.local_paths import local_path
from asyncconsumer.spark.source.source import KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "asyncconsumer"
_HERE: Final = Path(__file__).parents[2]
_LEFT_OUT: Final = {"__pycache__", "_native", "testing"}  # what runs nowhere but here


def package(path: str | Path, *, also: Iterable[str] = ()) -> Path:
    """Make the archive; `also` names further installed packages to bring, such as fastavro."""
    made = local_path(path, "the archive", "Make it in a local folder, and copy it there")
    if made.suffix != ".zip":
        raise ConfigError(f"{made}: Spark takes a .zip for --py-files, and nothing else")
    needed = sorted(_needed([_NAME, *also]) - {_NAME})
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(bootstrap.__file__, f"{_NAME}/__init__.py")
        archive.writestr(bootstrap.MADE_BY, interpreter())
        for file in sorted(_HERE.rglob("*")):
            inside = file.relative_to(_HERE)
            if file.is_file() and not _LEFT_OUT.intersection(inside.parts):
                archive.write(file, Path(bootstrap.PACKAGE, _NAME, inside))
        for name in needed:
            for there, inside in _files(name):
                archive.write(there, Path(bootstrap.DEPENDENCIES, inside))
    return made


def ship(spark: "SparkSession", *, also: Iterable[str] = ()) -> None:
    """Give the package to the executors of this session, classic or Connect; register the source.

    A source that was registered before does not bring what was added later, hence here, at the end.
    """
    folder = tempfile.mkdtemp(prefix="asyncconsumer-ship-")  # Spark serves the file from there
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = package(Path(folder, f"{_NAME}-{interpreter()}.zip"), also=also)
    session: Any = spark
    if (context := getattr(session, "sparkContext", None)) is not None:
        context.addPyFile(str(made))
    else:
        session.addArtifacts(str(made), pyfile=True)
    session.dataSource.register(KafkaSource)


def _needed(names: Iterable[str]) -> set[str]:
    """These packages, and those that they require here."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            required = [Requirement(each) for each in metadata.requires(name) or ()]
        except metadata.PackageNotFoundError:
            raise ConfigError(f"{name} is not installed here, so it cannot be shipped") from None
        waiting += [
            one.name for one in required if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return found


def _files(name: str) -> Iterator[tuple[Path, Path]]:
    """Where each file of a package is, and its place below `site-packages`."""
    for file in metadata.files(name) or ():
        if not {"..", "__pycache__"}.intersection(file.parts):
            yield Path(str(file.locate())), Path(*file.parts)
