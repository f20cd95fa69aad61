"""The addition of byte code to the zip files from which Spark's Python processes import pyspark.

These zip files contain only sources, and Python stores no byte code for modules in a zip file. So
each process compiles pyspark first, which takes 0.5 s of CPU. Each streaming query and each new
worker starts such a process. Python uses the added byte code only if the source in the zip file is
unchanged, and compiles a patched source again.
"""

import contextlib
import importlib.util
import marshal
import os
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from asyncconsumer.errors import ConfigError

# PEP 552: Python compares the hash with the source at each import
_CHECKED_HASH: Final = (3).to_bytes(4, "little")


def spark_home() -> Path:
    """Return Spark's installation folder: `SPARK_HOME`, or the folder of the pyspark package."""
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def python_zips(home: Path) -> list[Path]:
    """Return the zip files from which Spark's Python processes import modules.

    `home` is Spark's folder.
    """
    zips = sorted(Path(home, "python", "lib").glob("*.zip"))
    if not zips:
        raise ConfigError(
            f"{home} is not the folder of a Spark installation: python/lib/pyspark.zip is missing."
        )
    return [path.resolve() for path in zips]


def add_byte_code(archive: Path) -> int:
    """Add byte code of this Python version to a zip file of sources.

    Return the number of added modules.

    Other versions of Python still compile the sources. The zip file is replaced atomically. Its old
    entries keep their positions, so running processes can still read it.
    """
    missing = dict(_missing_byte_code(archive))
    if missing:
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".adding-") as folder:
            copy = Path(shutil.copy2(archive, folder))
            with (
                warnings.catch_warnings(action="ignore"),  # about names that exist already
                zipfile.ZipFile(copy, "a", zipfile.ZIP_DEFLATED) as target,
            ):
                for name, code in missing.items():
                    target.writestr(name, code)
            copy.replace(archive)
    return len(missing)


def _missing_byte_code(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each .pyc file that the zip file `archive` lacks."""
    with zipfile.ZipFile(archive) as old:
        names = set(old.namelist())
        for name in sorted(name for name in names if name.endswith(".py")):
            source = old.read(name)
            source_hash = importlib.util.source_hash(source)
            header = importlib.util.MAGIC_NUMBER + _CHECKED_HASH + source_hash
            if f"{name}c" in names and old.read(f"{name}c").startswith(header):
                continue
            with contextlib.suppress(SyntaxError):  # a template, or for another Python version
                code = compile(source, f"{archive}/{name}", "exec", dont_inherit=True)
                yield f"{name}c", header + marshal.dumps(code)
