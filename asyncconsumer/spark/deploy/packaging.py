"""The archive with this package, its compiled decoder and its dependencies, for Spark executors.

    ship(spark)
    spark.read.format("asyncconsumer")  # as on one machine

For `spark-submit`, create the file first:

    $ asyncconsumer spark-package asyncconsumer.zip
    $ spark-submit --py-files asyncconsumer.zip job.py

The archive does not contain pyarrow, which Spark's Python workers need as well. The archive is for
the platform and Python version on which it was created. With another Python version, the
dependencies must be installed on the executors. Each worker then uses the Python decoder, and logs
that once. It needs 8 us per record instead of 0.06 us.
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
_ROOT: Final = Path(__file__).parents[2]
_EXCLUDED: Final = {"__pycache__", "_native", "testing"}  # not needed on executors


def package(path: str | Path, *, also: Iterable[str] = ()) -> Path:
    """Create a zip file at `path` with this package and its dependencies, for Spark executors.

    Return its path.

    `also` names other installed packages to include, such as fastavro.
    """
    target = local_path(path, "The archive", "Create it in a local folder, and copy it.")
    if target.suffix != ".zip":
        raise ConfigError(f"The name of the archive {target} must end in .zip for --py-files.")
    dependencies = sorted(_with_dependencies([_NAME, *also]) - {_NAME})
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(bootstrap.__file__, f"{_NAME}/__init__.py")
        archive.writestr(bootstrap.MADE_BY, interpreter())
        for file in sorted(_ROOT.rglob("*")):
            inside = file.relative_to(_ROOT)
            if file.is_file() and not _EXCLUDED.intersection(inside.parts):
                archive.write(file, Path(bootstrap.PACKAGE, _NAME, inside))
        for name in dependencies:
            for file, inside in _files(name):
                archive.write(file, Path(bootstrap.DEPENDENCIES, inside))
    return target


def ship(spark: "SparkSession", *, also: Iterable[str] = ()) -> None:
    """Send this package to the executors of a Spark session, then register `KafkaSource`.

    The session may be a classic one or a Spark Connect session. The source is registered last,
    because a source that was registered before would not use the sent package.

    `also` names other installed packages to include, such as fastavro.
    """
    folder = tempfile.mkdtemp(prefix="asyncconsumer-ship-")  # Spark serves the file from there
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = package(Path(folder, f"{_NAME}-{interpreter()}.zip"), also=also)
    session: Any = spark
    if (context := getattr(session, "sparkContext", None)) is not None:
        context.addPyFile(str(archive))
    else:
        session.addArtifacts(str(archive), pyfile=True)
    session.dataSource.register(KafkaSource)


def _with_dependencies(names: Iterable[str]) -> set[str]:
    """Return these package names and those of all packages that they require on this platform."""
    packages: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in packages:
            continue
        packages.add(name)
        try:
            required = [Requirement(text) for text in metadata.requires(name) or ()]
        except metadata.PackageNotFoundError:
            raise ConfigError(
                f"The package {name} is not installed, so it cannot be added to the archive."
            ) from None
        pending += [
            requirement.name
            for requirement in required
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
    return packages


def _files(name: str) -> Iterator[tuple[Path, Path]]:
    """Yield each file of an installed package, and its path relative to `site-packages`."""
    for file in metadata.files(name) or ():
        if not {"..", "__pycache__"}.intersection(file.parts):
            yield Path(str(file.locate())), Path(*file.parts)
