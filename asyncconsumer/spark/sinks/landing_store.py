"""The interface of the storage below a landing folder, and its implementation for folders."""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final, Protocol

import pyarrow as pa

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.sinks.claims import Claim, RangeClaims
from asyncconsumer.spark.sinks.files import Files, LocalFiles
from asyncconsumer.types import TopicPartition

OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
HADOOP: Final = ("hdfs", "viewfs")
_HADOOP_URL: Final = re.compile(r"\w+://[^/]*(/.+)")
_SCHEME: Final = re.compile(r" *([a-zA-Z][a-zA-Z0-9+.-]+):")  # at least two letters: C: is a drive


class Claims(Protocol):
    """The store of the last claim of each partition, which all writers of a landing folder share.

    A claim is an offset range of a partition that a writer has written.
    """

    def heads(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim | None]:
        """Return the last claim of each partition, or None if the partition has no claim yet."""

    def take(self, partition: TopicPartition, head: Claim | None, claim: Claim) -> bool:
        """Replace the last claim by `claim` in one atomic step, if the last claim is still `head`.

        Return False if another writer has replaced `head` before.
        """

    def is_head(self, partition: TopicPartition, claim: Claim) -> bool:
        """Return whether `claim` is the last claim of the partition."""

    def sync(self, partition: TopicPartition) -> None:
        """Make the last claim of the partition durable."""


class LandingStore(Protocol):
    """The files and claims of a landing folder."""

    @property
    def folder(self) -> str | Path:
        """The path or the URL of the folder."""

    @property
    def claims(self) -> Claims:
        """The claims of the folder."""

    @property
    def max_requests(self) -> int:
        """The number of calls that may be made at once, from several threads."""

    def open(self) -> None:
        """Create the folder, or check that it can be read."""

    def write(self, name: str, table: pa.Table, options: Mapping[str, Any]) -> None:
        """Write a Parquet file into ``_pending``."""

    def sync_pending(self, names: Iterable[str]) -> None:
        """Make these pending files durable, unless another writer has deleted them."""

    def is_pending(self, name: str) -> bool:
        """Return whether ``_pending`` has a file of that name."""

    def pending_files(self) -> Iterable[str]:
        """Return the names of all files in ``_pending``."""

    def move(self, name: str, visible: str) -> bool:
        """Move a pending file to where Spark sees it.

        Return False if there is no such file, because another writer has moved it.
        """

    def sync_visible(self) -> None:
        """Make all earlier calls of `move` durable."""

    def delete(self, name: str) -> None:
        """Delete a pending file, if it exists."""


class FolderStore:
    """A landing folder in a file system that renames atomically.

    `folder` is the path or URL that the user has given, and `path` is its path in `files`.
    """

    def __init__(
        self, files: Files, folder: str | Path, path: PurePath, links: Path | None
    ) -> None:
        self.folder: Final = folder
        self.claims: Final = RangeClaims(files, path / "_claims", links)
        self._files = files
        self._path = path
        self._pending = path / "_pending"

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def max_requests(self) -> int:
        """The number of calls that may be made at once, from several threads."""
        return self._files.max_requests

    def open(self) -> None:
        """Create the folder and its subfolders."""
        for folder in (self._path, self._pending, self.claims.folder):
            try:
                self._files.make_folder(folder)
            except FileExistsError:
                raise ConfigError(f"{folder} is a file. LandingFolder needs a folder.") from None
        self._files.sync(self._path)

    def write(self, name: str, table: pa.Table, options: Mapping[str, Any]) -> None:
        """Write a Parquet file into ``_pending``."""
        self._files.write_table(self._pending / name, table, options)

    def sync_pending(self, names: Iterable[str]) -> None:
        """Make these pending files durable, unless another writer has deleted them."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._files.sync(self._pending / name)
        self._files.sync(self._pending)

    def is_pending(self, name: str) -> bool:
        """Return whether ``_pending`` has a file of that name."""
        return self._files.exists(self._pending / name)

    def pending_files(self) -> Collection[str]:
        """Return the names of all files in ``_pending``."""
        return self._files.names(self._pending)

    def move(self, name: str, visible: str) -> bool:
        """Move a pending file to where Spark sees it. Return False if there is no such file."""
        try:
            self._files.rename(self._pending / name, self._path / visible)
        except FileNotFoundError:
            return False
        return True

    def sync_visible(self) -> None:
        """Make all earlier calls of `move` durable."""
        self._files.sync(self._path)

    def delete(self, name: str) -> None:
        """Delete a pending file, if it exists."""
        self._files.delete(self._pending / name)


def store_of(
    folder: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> LandingStore:
    """Return the storage for a path or for a URL such as ``s3://bucket/folder``.

    Raise ConfigError for another URL, and for `storage_options` of a path.
    """
    text = str(folder)  # for the path object of an object store, this is its URL
    scheme = match[1].lower() if (match := _SCHEME.match(text)) else None
    if scheme in OBJECT_STORES:
        from asyncconsumer.spark.sinks.object_store import ObjectStore

        return ObjectStore(_url(text), storage_options or {})
    if scheme in HADOOP:
        return _hdfs_store(text.strip(), storage_options or {})
    if scheme is not None:
        raise ConfigError(
            f"LandingFolder does not know the scheme {scheme!r} of {text!r}. Use a local path, or "
            f"a URL with one of {', '.join((*OBJECT_STORES, *HADOOP))}. If it is a local path, "
            "pass it as an absolute path."
        )
    if storage_options:
        raise ConfigError(
            f"`storage_options` of LandingFolder are for URLs, and {text!r} is a local "
            "path. Remove them, or pass a URL."
        )
    path = Path(folder)
    return FolderStore(LocalFiles(), path, path, path / "_offsets")


def _hdfs_store(url: str, storage_options: Mapping[str, str]) -> LandingStore:
    from asyncconsumer.spark.sinks.hdfs import HdfsFiles

    if (match := _HADOOP_URL.fullmatch(url)) is None:
        raise ConfigError(
            f"{url!r} is not a URL of a Hadoop file system. Pass it as a string such as "
            "'hdfs://namenode:8020/landing', or 'hdfs:///landing' for the default file system."
        )
    return FolderStore(HdfsFiles(url, storage_options), url, PurePosixPath(match[1]), links=None)


def _url(text: str) -> str:
    """Return `text` with two slashes after its scheme.

    A path object that was made from a URL has only one of them.
    """
    return re.sub(r"^\s*([\w+.-]+):/+", lambda match: f"{match[1].lower()}://", text)
