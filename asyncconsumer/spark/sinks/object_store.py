"""A landing folder in an object store, whose claims are replaced by conditional writes.

The claim of a partition is one object. A new claim is written on the condition that the object is
the one that the writer has read (If-Match), or that there is none (If-None-Match). Each claim has a
token of its own, so no two claims of a partition have the same ETag.

A move is a copy and a deletion. If a writer dies between them, the next one copies the file again,
under the same name. Spark's file stream remembers the names that it has read.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, PreconditionError
    from obstore.store import from_url
except ImportError as error:
    raise ImportError(
        "LandingFolder needs obstore for a URL: pip install 'asyncconsumer[object-store]'"
    ) from error

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.sinks.claims import Claim, folder_name
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion
    from obstore.store import ObjectStore as Store

_PENDING: Final = "_pending"
_CLAIMS: Final = "_claims"
_MAX_REQUESTS: Final = 16
_CLIENT_OPTIONS: Final = ("allow_http", "allow_invalid_certificates", "proxy_url", "timeout")


class ObjectStore:
    """A landing folder at a URL of an object store. `storage_options` are the store's settings."""

    max_requests: Final = _MAX_REQUESTS

    def __init__(self, url: str, storage_options: Mapping[str, str]) -> None:
        self.folder: Final = url
        config = {name.lower(): value for name, value in storage_options.items()}
        client = {name: config.pop(name) for name in _CLIENT_OPTIONS if name in config}
        client |= {
            name: config.pop(f"aws_{name}") for name in _CLIENT_OPTIONS if f"aws_{name}" in config
        }
        try:
            self._store: Store = from_url(url, config=config, client_options=client)  # type: ignore[call-overload]
        except Exception as error:  # each provider has errors of its own
            raise ConfigError(
                f"The landing folder {url} cannot be opened: {error}. Check the URL and "
                "`storage_options`."
            ) from error
        self.claims: Final = ObjectClaims(self._store, url)

    def __str__(self) -> str:
        return self.folder

    def open(self) -> None:
        """Raise an error if the folder cannot be listed."""
        next(iter(obstore.list(self._store, _CLAIMS)), None)

    def write(self, name: str, table: pa.Table, options: Mapping[str, Any]) -> None:
        """Write a Parquet file into ``_pending``."""
        content = pa.BufferOutputStream()
        pq.write_table(table, content, **options)
        obstore.put(self._store, f"{_PENDING}/{name}", content.getvalue().to_pybytes())

    def sync_pending(self, names: Iterable[str]) -> None:
        """Do nothing, because an object is durable after the request."""

    def is_pending(self, name: str) -> bool:
        """Return whether ``_pending`` has a file of that name."""
        try:
            obstore.head(self._store, f"{_PENDING}/{name}")
        except FileNotFoundError:
            return False
        return True

    def pending_files(self) -> Collection[str]:
        """Return the names of all files in ``_pending``."""
        pages = obstore.list(self._store, _PENDING)
        return [str(item["path"]).rpartition("/")[2] for page in pages for item in page]

    def move(self, name: str, visible: str) -> bool:
        """Copy a pending file to where Spark sees it, and delete it.

        Return False if there is no such file.
        """
        try:
            obstore.copy(self._store, f"{_PENDING}/{name}", visible)
        except FileNotFoundError:
            return False
        self.delete(name)
        return True

    def sync_visible(self) -> None:
        """Do nothing, because an object is durable after the request."""

    def delete(self, name: str) -> None:
        """Delete a pending file, if it exists."""
        try:
            obstore.delete(self._store, f"{_PENDING}/{name}")
        except FileNotFoundError:
            return


class ObjectClaims:
    """The store of the last claim of each partition, in one object for each partition.

    A claim is an offset range of a partition that a writer has written.
    """

    def __init__(self, store: "Store", url: str) -> None:
        self._store = store
        self._url = url
        self._versions: dict[TopicPartition, tuple[Claim | None, UpdateVersion | None]] = {}

    def heads(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim | None]:
        """Return the last claim of each partition, or None if the partition has no claim yet."""
        return {tp: self._read(tp) for tp in partitions}

    def take(self, partition: TopicPartition, head: Claim | None, claim: Claim) -> bool:
        """Replace the last claim by `claim`, if the last claim is still `head`.

        Return False if another writer has replaced `head` before.
        """
        known, version = self._versions.get(partition, (None, None))
        if known != head:
            return self.is_head(partition, claim)
        mode: PutMode = "create" if version is None else version
        try:
            result = obstore.put(self._store, _path(partition), claim.name.encode(), mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return self.is_head(partition, claim)  # an earlier attempt may have written it
        self._versions[partition] = claim, _version(result)
        return True

    def is_head(self, partition: TopicPartition, claim: Claim) -> bool:
        """Return whether `claim` is the last claim of the partition."""
        return self._read(partition) == claim

    def sync(self, partition: TopicPartition) -> None:
        """Do nothing, because an object is durable after the request."""

    def _read(self, partition: TopicPartition) -> Claim | None:
        path = _path(partition)
        try:
            result = obstore.get(self._store, path)
            content, version = bytes(result.bytes()), _version(result.meta)
        except FileNotFoundError:
            self._versions[partition] = None, None
            return None
        if (claim := Claim.parse(content.decode(errors="replace"))) is None:
            raise ConfigError(
                f"{self._url}/{path} is not a claim of a landing folder. Remove this object."
            )
        self._versions[partition] = claim, version
        return claim


def _path(partition: TopicPartition) -> str:
    return f"{_CLAIMS}/{folder_name(partition)}"


def _version(written: Mapping[str, Any]) -> "UpdateVersion":
    """Return the condition by which a later write replaces only this version of an object."""
    tags = {name: written[name] for name in ("e_tag", "version") if written.get(name)}
    return cast("UpdateVersion", tags)
