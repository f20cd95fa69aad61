"""The first module that an executor imports from the zip file that `packaging` creates.

In the zip file, this module is the `__init__` of `asyncconsumer`. It unpacks the zip file and
imports the real package, because Python cannot import compiled modules from a zip file. The first
Python worker unpacks the file into a folder beside the file, and later workers share that folder.
The folder is named by the SHA-256 of the zip file. So a new zip file never runs the code of an
older one. A folder is shared only if no other user can have written to it. Otherwise the process
unpacks a private copy.

This module runs before the zip file is unpacked, so it imports only the standard library.
"""

import atexit
import hashlib
import importlib
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import IO

PACKAGE = "package"
DEPENDENCIES = "dependencies"
MADE_BY = "made-by.txt"
_NOTE = Path(PACKAGE, "asyncconsumer", "records", "_not_compiled.txt")
_FOLDER_MODE, _FILE_MODE = 0o755, 0o644  # others read and cannot write, whatever the umask is


def interpreter() -> str:
    """Return the ABI tag of this Python, such as `cpython-312-x86_64-linux-gnu`.

    Compiled modules must have the same tag.
    """
    return str(sysconfig.get_config_var("SOABI"))


def unpack(archive: Path) -> list[Path]:
    """Unpack the zip file `archive`, and return the folders to add to `sys.path`.

    The file is not unpacked again if another process has unpacked it into a folder that no other
    user can have changed. The folder of dependencies is left out if they are compiled for another
    Python.
    """
    with archive.open("rb") as file:  # opened once, so that the hashed file is the unpacked one
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        shared = archive.parent.resolve() / f"asyncconsumer-{digest}"
        folder = shared if is_trusted(shared) else _unpack(file, shared)
    if (folder / MADE_BY).read_text(encoding="utf-8") != interpreter():
        return [folder / PACKAGE]  # the compiled dependencies are for another Python
    return [folder / PACKAGE, folder / DEPENDENCIES]


def is_trusted(folder: Path) -> bool:
    """Return whether only this user and root can have written to a folder, or can replace it.

    All parents are checked, because their owners could rename the folder. In a sticky folder such
    as /tmp, only the owner of an entry can rename it.
    """
    users = (0, os.geteuid())
    for path in (folder, *folder.parents):
        try:
            status = path.lstat()  # not `stat`, which follows a symbolic link
        except OSError:
            return False
        open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        sticky = path != folder and status.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in users:
            return False
        if open_to_others and not sticky:
            return False
    return True


def _unpack(file: IO[bytes], shared: Path) -> Path:
    """Unpack the zip file into the folder `shared`, and return that folder.

    If this user cannot write there, or another user can, unpack the file into a private folder of
    this process instead.
    """
    try:
        return _unpack_shared(file, shared)
    except OSError:  # this user cannot write there, or others can
        private = Path(tempfile.mkdtemp(prefix="asyncconsumer-")).resolve()
        atexit.register(_remove, private, os.getpid())
        _extract(file, private)
        return private


def _unpack_shared(file: IO[bytes], shared: Path) -> Path:
    temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=shared.parent))
    try:
        if not is_trusted(temporary) or os.path.lexists(shared):
            raise PermissionError(f"Other users can write to {shared}, or have written to it.")
        _extract(file, temporary)
        temporary.chmod(_FOLDER_MODE)
        temporary.rename(shared)  # atomic: the folder is complete or missing
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not is_trusted(shared):  # the cause is not that another process was first
            raise
    return shared


def _extract(file: IO[bytes], folder: Path) -> None:
    with zipfile.ZipFile(file) as packed:
        packed.extractall(folder)  # zipfile keeps all files inside the folder
    made_by = (folder / MADE_BY).read_text(encoding="utf-8")
    if made_by != interpreter():
        reason = (
            f"the archive is for {made_by}, and this Python is {interpreter()}; create the archive "
            "with the Python of the executors"
        )
        (folder / _NOTE).write_text(reason, encoding="utf-8")
    for path, folders, names in os.walk(folder):
        # otherwise the first import creates it, with the umask of that process
        Path(path, "__pycache__").mkdir(exist_ok=True)
        for name in {*folders, "__pycache__"}:
            Path(path, name).chmod(_FOLDER_MODE)
        for name in names:
            Path(path, name).chmod(_FILE_MODE)


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked process must not remove what its parent uses
        shutil.rmtree(folder, ignore_errors=True)


def import_package(archive: Path) -> None:
    """Unpack the zip file `archive`, and import the real package in place of this module."""
    sys.path[:0] = [str(folder) for folder in unpack(archive)]
    del sys.modules["asyncconsumer"]
    importlib.invalidate_caches()
    importlib.import_module("asyncconsumer")


if __name__ == "asyncconsumer":
    import_package(Path(__file__).parents[1])
