"""Byte code for the Python that Spark starts its processes with.

Spark imports pyspark from zips that hold its sources alone, and a process keeps nothing of what it
compiles from a zip. So each process first compiles pyspark, which takes 0.5 s of CPU. Streaming
queries wait for that, because each starts a process of its own, and so does every new worker.
Byte code counts only while the source in the same zip is the one that it was compiled from. Python
compiles a source that was patched since.
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

# PEP 552: Python compares the hash with the source at each import, so a patched source counts
_CHECKED: Final = (3).to_bytes(4, "little")


def spark_home() -> Path:
    """Return the folder of Spark: `SPARK_HOME`, or where pyspark is installed."""
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def zips_of(home: Path) -> list[Path]:
    """Return the zips that Spark's Python processes import from."""
    found = sorted(Path(home, "python", "lib").glob("*.zip"))
    if not found:
        raise ConfigError(f"{home}: there is no python/lib/pyspark.zip, so it is no Spark's home")
    return [one.resolve() for one in found]


def add_byte_code(archive: Path) -> int:
    """Add this Python's byte code to a zip of sources; for how many modules it was missing.

    Other Pythons go on compiling. The zip is replaced as a whole, or not at all, and what it had
    stays where it is: processes that were started from it go on reading it.
    """
    missing = dict(_missing(archive))
    if missing:
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".adding-") as folder:
            made = Path(shutil.copy2(archive, folder))
            with (
                warnings.catch_warnings(action="ignore"),  # that a name hides an older one
                zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as adding,
            ):
                for name, code in missing.items():
                    adding.writestr(name, code)
            made.replace(archive)
    return len(missing)


def _missing(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the .pyc files that this Python would look for, as PEP 552 has them."""
    with zipfile.ZipFile(archive) as old:
        there = set(old.namelist())
        for name in sorted(one for one in there if one.endswith(".py")):
            source = old.read(name)
            header = importlib.util.MAGIC_NUMBER + _CHECKED + importlib.util.source_hash(source)
            if f"{name}c" in there and old.read(f"{name}c").startswith(header):
                continue
            with contextlib.suppress(SyntaxError):  # of what is not for this Python, or a template
                code = compile(source, f"{archive}/{name}", "exec", dont_inherit=True)
                yield f"{name}c", header + marshal.dumps(code)
