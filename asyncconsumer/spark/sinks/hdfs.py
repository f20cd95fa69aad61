"""The files of a Hadoop file system, for landing folders with a URL such as ``hdfs://nn/landing``.

The NameNode renames atomically. A file is complete and replicated when it is closed, so there is
nothing to sync.
"""

import contextlib
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

try:
    from hdfs_native import Client
except ImportError as error:
    raise ImportError(
        "LandingFolder needs hdfs-native for an hdfs URL: pip install 'asyncconsumer[hdfs]'"
    ) from error

from asyncconsumer.errors import ConfigError

_MAX_REQUESTS: Final = 16
_LOGIN: Final = ("kerberos_principal", "kerberos_keytab", "kerberos_cache")


class HdfsFiles:
    """The files of one Hadoop file system.

    `storage_options` are properties of Hadoop, and the settings `kerberos_principal`,
    `kerberos_keytab` and `kerberos_cache` of a login. Other properties are read from the files in
    ``$HADOOP_CONF_DIR``.
    """

    max_requests: Final = _MAX_REQUESTS

    def __init__(self, url: str, storage_options: Mapping[str, str]) -> None:
        login = {name: storage_options[name] for name in _LOGIN if name in storage_options}
        config = {name: value for name, value in storage_options.items() if name not in login}
        try:
            self._client = Client(url, config, **login)
        except Exception as error:  # hdfs-native has no error type of its own
            raise ConfigError(
                f"The landing folder {url} cannot be opened: {error}. Check the URL, "
                "`storage_options` and $HADOOP_CONF_DIR."
            ) from error

    def make_folder(self, path: PurePath) -> None:
        """Create a folder and its parents, unless they exist."""
        self._client.mkdirs(str(path), create_parent=True)

    def is_folder(self, path: PurePath) -> bool:
        """Return whether the path is a folder."""
        try:
            return self._client.get_file_info(str(path)).isdir
        except FileNotFoundError:
            return False

    def exists(self, path: PurePath) -> bool:
        """Return whether the path is a file or a folder."""
        try:
            self._client.get_file_info(str(path))
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: PurePath) -> Collection[str]:
        """Return the names of all entries of a folder."""
        return [entry.path.rpartition("/")[2] for entry in self._client.list_status(str(folder))]

    def touch(self, path: PurePath) -> None:
        """Create an empty file."""
        self._client.create(str(path)).close()

    def write_table(self, path: PurePath, table: pa.Table, options: Mapping[str, Any]) -> None:
        """Write a Parquet file."""
        content = pa.BufferOutputStream()
        pq.write_table(table, content, **options)
        with self._client.create(str(path)) as file:
            file.write(content.getvalue())

    def rename(self, path: PurePath, target: PurePath) -> None:
        """Rename a file or folder in one atomic step."""
        self._client.rename(str(path), str(target))

    def delete(self, path: PurePath) -> None:
        """Delete a file, if it exists."""
        self._client.delete(str(path))

    def delete_folder(self, path: PurePath) -> None:
        """Delete a folder and its contents. Ignore errors."""
        with contextlib.suppress(OSError, RuntimeError):
            self._client.delete(str(path), recursive=True)

    def sync(self, path: PurePath) -> None:
        """Do nothing, because a closed file is durable."""
