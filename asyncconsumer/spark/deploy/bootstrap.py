"""The bootstrap of the archive that `packaging` makes. Unpacks it and imports the real package.

Python cannot import compiled modules from a zip. The first Python worker that imports the archive
unpacks it into a folder beside it, and later workers share that folder. The SHA-256 of the archive
names the folder, so a replaced archive never runs the code of an older one. A folder is shared only
if no other user can have written to it. Otherwise the process unpacks a private copy.

This module is all that exists before the archive is unpacked. It imports only the standard library.
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
    """Return the ABI of this Python, which compiled modules must match."""
    return str(sysconfig.get_config_var("SOABI"))


def unpacked(archive: Path) -> list[Path]:
    """Return the folders to import from. Unpack the archive unless a trusted folder has it."""
    with archive.open("rb") as file:  # one open file: what is unpacked is what was hashed
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        shared = archive.parent.resolve() / f"asyncconsumer-{digest}"
        folder = shared if is_trusted(shared) else _unpack(file, shared)
    if (folder / MADE_BY).read_text(encoding="utf-8") != interpreter():
        return [folder / PACKAGE]  # the compiled dependencies are for another Python
    return [folder / PACKAGE, folder / DEPENDENCIES]


def is_trusted(folder: Path) -> bool:
    """Return whether only this user and root can have written to a folder, or can replace it.

    Every parent counts: its owner could rename what is below. In a sticky folder such as /tmp only
    owners rename their entries.
    """
    users = (0, os.geteuid())
    for one in (folder, *folder.parents):
        try:
            found = one.lstat()  # a symbolic link is no folder
        except OSError:
            return False
        open_to_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        sticky = one != folder and found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in users:
            return False
        if open_to_others and not sticky:
            return False
    return True


def _unpack(file: IO[bytes], shared: Path) -> Path:
    """Unpack to the shared folder, or otherwise to a private folder of this process."""
    try:
        return _unpack_shared(file, shared)
    except OSError:  # this user cannot write there, or others can
        own = Path(tempfile.mkdtemp(prefix="asyncconsumer-")).resolve()
        atexit.register(_remove, own, os.getpid())
        _extract(file, own)
        return own


def _unpack_shared(file: IO[bytes], shared: Path) -> Path:
    making = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=shared.parent))
    try:
        if not is_trusted(making) or os.path.lexists(shared):
            raise PermissionError(f"{shared}: other users can write there, or have written")
        _extract(file, making)
        making.chmod(_FOLDER_MODE)
        making.rename(shared)  # complete, or not there
    except OSError:
        shutil.rmtree(making, ignore_errors=True)
        if not is_trusted(shared):  # the cause is not that another process was first
            raise
    return shared


def _extract(file: IO[bytes], folder: Path) -> None:
    with zipfile.ZipFile(file) as packed:
        packed.extractall(folder)  # never outside of it, whatever the names are
    made_by = (folder / MADE_BY).read_text(encoding="utf-8")
    if made_by != interpreter():
        reason = f"the archive was made by {made_by}, and this is {interpreter()}: make it there"
        (folder / _NOTE).write_text(reason, encoding="utf-8")
    for place, folders, names in os.walk(folder):
        # Python would create it with the umask of whoever imports first
        Path(place, "__pycache__").mkdir(exist_ok=True)
        for name in {*folders, "__pycache__"}:
            Path(place, name).chmod(_FOLDER_MODE)
        for name in names:
            Path(place, name).chmod(_FILE_MODE)


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked process must not remove what its parent uses
        shutil.rmtree(folder, ignore_errors=True)


def step_aside(archive: Path) -> None:
    """Import the unpacked package in place of this module."""
    sys.path[:0] = [str(folder) for folder in unpacked(archive)]
    del sys.modules["asyncconsumer"]
    importlib.invalidate_caches()
    importlib.import_module("asyncconsumer")


if __name__ == "asyncconsumer":
    step_aside(Path(__file__).parents[1])
