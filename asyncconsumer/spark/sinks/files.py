"""The operations of a file system that renames atomically, and their local implementation."""

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class Files(Protocol):
    """The operations of a file system. On a missing path they raise FileNotFoundError."""

    @property
    def max_requests(self) -> int:
        """The number of calls that may be made at once, from several threads."""

    def make_folder(self, path: PurePath) -> None:
        """Create a folder and its parents, unless they exist."""

    def is_folder(self, path: PurePath) -> bool:
        """Return whether the path is a folder."""

    def exists(self, path: PurePath) -> bool:
        """Return whether the path is a file or a folder."""

    def names(self, folder: PurePath) -> Collection[str]:
        """Return the names of all entries of a folder."""

    def touch(self, path: PurePath) -> None:
        """Create an empty file."""

    def write_table(self, path: PurePath, table: pa.Table, options: Mapping[str, Any]) -> None:
        """Write a Parquet file."""

    def rename(self, path: PurePath, target: PurePath) -> None:
        """Rename a file or folder in one atomic step.

        Raise OSError if the target is a folder that is not empty.
        """

    def delete(self, path: PurePath) -> None:
        """Delete a file, if it exists."""

    def delete_folder(self, path: PurePath) -> None:
        """Delete a folder and its contents. Ignore errors."""

    def sync(self, path: PurePath) -> None:
        """Make the contents of a file durable. For a folder, make the names in it durable."""


class LocalFiles:
    """The files of this machine, or of a network file system."""

    max_requests: Final = 1

    def make_folder(self, path: PurePath) -> None:
        """Create a folder and its parents, unless they exist."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def is_folder(self, path: PurePath) -> bool:
        """Return whether the path is a folder."""
        return Path(path).is_dir()

    def exists(self, path: PurePath) -> bool:
        """Return whether the path is a file or a folder."""
        return Path(path).exists()

    def names(self, folder: PurePath) -> Collection[str]:
        """Return the names of all entries of a folder."""
        return os.listdir(folder)  # noqa: PTH208

    def touch(self, path: PurePath) -> None:
        """Create an empty file."""
        Path(path).touch()

    def write_table(self, path: PurePath, table: pa.Table, options: Mapping[str, Any]) -> None:
        """Write a Parquet file."""
        pq.write_table(table, str(path), **options)

    def rename(self, path: PurePath, target: PurePath) -> None:
        """Rename a file or folder in one atomic step."""
        Path(path).rename(target)

    def delete(self, path: PurePath) -> None:
        """Delete a file, if it exists."""
        Path(path).unlink(missing_ok=True)

    def delete_folder(self, path: PurePath) -> None:
        """Delete a folder and its contents. Ignore errors."""
        shutil.rmtree(path, ignore_errors=True)

    def sync(self, path: PurePath) -> None:
        """Make the contents of a file durable on disk. For a folder, make its names durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
