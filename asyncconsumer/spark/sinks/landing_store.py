"""The interface of the storage below a landing folder, and its implementation for local folders."""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.sinks.claims import Claim, RangeClaims, sync
from asyncconsumer.types import TopicPartition

OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
_SCHEME: Final = re.compile(r" *([a-zA-Z][a-zA-Z0-9+.-]+):")  # at least two letters: C: is a drive


class Claims(Protocol):
    """The last claim of each partition, one entry for each, which all writers share."""

    def heads(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim | None]:
        """Return the last claim of each partition; None before the first one."""

    def take(self, partition: TopicPartition, head: Claim | None, claim: Claim) -> bool:
        """Replace the last claim, `head`, by `claim` in one atomic step.

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
        """Make the moves durable."""

    def delete(self, name: str) -> None:
        """Delete a pending file, if it exists."""


class LocalStore:
    """A landing folder in a file system that renames atomically."""

    max_requests: Final = 1

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.claims: Final = RangeClaims(folder / "_claims", folder / "_offsets")
        self._pending = folder / "_pending"

    def __str__(self) -> str:
        return str(self.folder)

    def open(self) -> None:
        """Create the folder and its subfolders."""
        for folder in (self.folder, self._pending, self.claims.folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise ConfigError(f"{folder} is a file. LandingFolder needs a folder.") from None
        sync(self.folder)

    def write(self, name: str, table: pa.Table, options: Mapping[str, Any]) -> None:
        """Write a Parquet file into ``_pending``."""
        pq.write_table(table, str(self._pending / name), **options)

    def sync_pending(self, names: Iterable[str]) -> None:
        """Make these pending files durable, unless another writer has deleted them."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sync(self._pending / name)
        sync(self._pending)

    def is_pending(self, name: str) -> bool:
        """Return whether ``_pending`` has a file of that name."""
        return (self._pending / name).exists()

    def pending_files(self) -> Collection[str]:
        """Return the names of all files in ``_pending``."""
        return os.listdir(self._pending)  # noqa: PTH208

    def move(self, name: str, visible: str) -> bool:
        """Move a pending file to where Spark sees it. Return False if there is no such file."""
        try:
            (self._pending / name).rename(self.folder / visible)
        except FileNotFoundError:
            return False
        return True

    def sync_visible(self) -> None:
        """Make the moves durable."""
        sync(self.folder)

    def delete(self, name: str) -> None:
        """Delete a pending file, if it exists."""
        (self._pending / name).unlink(missing_ok=True)


def store_of(
    folder: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> LandingStore:
    """Return the storage for a path or for a URL such as ``s3://bucket/folder``."""
    text = str(folder)  # for the path object of an object store, this is its URL
    scheme = match[1].lower() if (match := _SCHEME.match(text)) else None
    if scheme in OBJECT_STORES:
        from asyncconsumer.spark.sinks.object_store import ObjectStore

        return ObjectStore(_url(text), storage_options or {})
    if scheme is not None:
        raise ConfigError(
            f"LandingFolder does not know the scheme {scheme!r} of {text!r}. Use a local path, or "
            f"a URL with one of {', '.join(OBJECT_STORES)}. If it is a local path, pass it as an "
            "absolute path."
        )
    if storage_options:
        raise ConfigError(
            f"`storage_options` of LandingFolder are for object stores, and {text!r} is a local "
            "path. Remove them, or pass a URL."
        )
    return LocalStore(Path(folder))


def _url(text: str) -> str:
    """Return the URL of which `text` may be the path object, whose slashes are merged."""
    return re.sub(r"^\s*([\w+.-]+):/+", lambda match: f"{match[1].lower()}://", text)
