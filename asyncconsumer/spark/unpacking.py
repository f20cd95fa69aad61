"""Stands for the whole package in the archive that `shipping` makes: unpacks it, and steps aside.

Compiled modules cannot be imported from a zip, so the archive is unpacked beside itself: on a Spark
executor that is its work folder, where the first Python worker does it for all. There is nothing
but the standard library here yet.
"""

import importlib
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "package"
DEPENDENCIES = "dependencies"
MADE_BY = "made-by.txt"
_NOTE = Path(PACKAGE, "asyncconsumer", "wire", "_not_compiled.txt")


def interpreter() -> str:
    """Which Python, for which machine: what a compiled module must have been made for."""
    return str(sysconfig.get_config_var("SOABI"))


def unpacked(archive: Path) -> list[Path]:
    """The folders to import from, unpacked unless somebody did."""
    folder = archive.with_name(f"{archive.name}.unpacked")
    if not folder.is_dir():
        try:
            folder = _unpack(archive, folder)
        except OSError:  # nobody can write there: each process has its own
            own = Path(tempfile.mkdtemp(prefix="asyncconsumer-"))
            folder = _unpack(archive, own / folder.name)
    if (folder / MADE_BY).read_text(encoding="utf-8") != interpreter():
        return [folder / PACKAGE]  # compiled modules of ours are for another Python
    return [folder / PACKAGE, folder / DEPENDENCIES]


def _unpack(archive: Path, folder: Path) -> Path:
    making = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(making)
    made_by = (making / MADE_BY).read_text(encoding="utf-8")
    if made_by != interpreter():
        reason = f"the archive was made by {made_by}, and this is {interpreter()}: make it there"
        (making / _NOTE).write_text(reason, encoding="utf-8")
    try:
        making.rename(folder)  # whole, or not there
    except OSError:
        shutil.rmtree(making)
        if not folder.is_dir():  # so it was not that another one was first
            raise
    return folder


def step_aside(archive: Path) -> None:
    """Have what was unpacked imported in our place."""
    sys.path[:0] = [str(folder) for folder in unpacked(archive)]
    del sys.modules["asyncconsumer"]
    importlib.invalidate_caches()
    importlib.import_module("asyncconsumer")


if __name__ == "asyncconsumer":
    step_aside(Path(__file__).parents[1])
