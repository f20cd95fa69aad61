"""A folder of Parquet files for a Spark file stream. Each record is in exactly one file.

    spark.readStream.schema(...).parquet("landing")

The folder has two subfolders that Spark ignores, because their names begin with an underscore. A
writer first writes a file into ``_pending``. Then it claims the file's range of offsets in
``_claims``. This claim is the commit, see `asyncconsumer.spark.sinks.claims`. Finally the writer
moves the file to where Spark sees it. If it dies before, the next writer moves the file. A writer
claims a range only after the file of the range before it is visible.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from asyncconsumer.spark.feeder.batches import BatchPart, FeedBatch, range_name
from asyncconsumer.spark.sinks.claims import Claim, file_name, folder_name
from asyncconsumer.spark.sinks.landing_store import LandingStore, store_of
from asyncconsumer.spark.sinks.protocol import check_topic
from asyncconsumer.types import TopicPartition

_PENDING: Final = re.compile(r"([0-9a-f]{32})-(.+)")
_NO_DICTIONARY: Final = ("offset", "timestamp", "key", "value")  # slow, and of little use
_T = TypeVar("_T")


class LandingFolder:
    """A sink of Parquet files in a local or network folder, in HDFS, or in an object store.

    A local or network file system must rename atomically, as local ones and NFS do. URLs such as
    ``s3://bucket/landing``, ``gs://bucket/landing`` and
    ``abfss://container@account.dfs.core.windows.net/landing`` name a folder in an object store that
    supports conditional writes. `storage_options` are its settings, with the names of delta-rs and
    obstore, such as ``aws_access_key_id`` or ``endpoint``. Settings that are missing are read from
    the environment, as the SDK of the provider does.

    ``hdfs://namenode:8020/landing`` and ``hdfs:///landing`` name a folder in a Hadoop file system.
    Its `storage_options` are properties of Hadoop and `kerberos_principal`, `kerberos_keytab` or
    `kerberos_cache`. Other properties are read from the files in ``$HADOOP_CONF_DIR``.

    File names contain topic, partition and offsets. Files may be moved or deleted after they were
    read (Spark's ``cleanSource``), because offsets are kept in ``_claims``. `parquet` are options
    of `pyarrow.parquet.write_table`.
    """

    remembers: Final = True
    apart: Final = False

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        **parquet: Any,  # noqa: ANN401 - pyarrow checks them
    ) -> None:
        self._store: Final[LandingStore] = store_of(folder, storage_options)
        self._parquet = {"compression": "zstd", **parquet}
        self._heads: dict[TopicPartition, Claim | None] = {}  # last claims; their files are visible

    def __str__(self) -> str:
        return f"the landing folder {self._store}"

    @property
    def folder(self) -> str | Path:
        """The path or the URL of the folder."""
        return self._store.folder

    def open(self) -> None:
        """Create the landing folder and its subfolders. Check access to an object store."""
        self._store.open()

    # --- offsets ---------------------------------------------------------------------------------

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the offset after each partition's last claim, or None without a claim.

        Also move or delete the files that dead writers left in ``_pending``.
        """
        heads = self._store.claims.heads(partitions)
        claims = {tp: head for tp, head in heads.items() if head is not None}
        pending = set(self._store.pending_files())
        unmoved = {tp: c for tp, c in claims.items() if not pending.isdisjoint(_names(tp, c))}
        for tp in unmoved:
            self._store.claims.sync(tp)  # the writer may have died before its claim was durable
        self._make_visible(unmoved)
        self._delete_stale(pending, claims)
        self._heads |= heads
        return {tp: head and head.end for tp, head in heads.items()}

    def _make_visible(self, claims: Mapping[TopicPartition, Claim]) -> None:
        """Move the claimed files to where Spark sees them, unless another writer has moved them."""

        def move(tp: TopicPartition) -> bool:
            suffix = f"{range_name(tp, claims[tp].start, claims[tp].end)}.parquet"
            visible = file_name("kafka-", tp.topic, suffix)
            return any(self._store.move(name, visible) for name in _names(tp, claims[tp]))

        if any(self._each(move, claims)):
            self._store.sync_visible()

    def _delete_stale(self, pending: Iterable[str], heads: Mapping[TopicPartition, Claim]) -> None:
        """Delete pending files that begin before the end of the partition's last claim.

        Such files cannot be claimed any more. A file that begins later may belong to a live writer,
        so it stays until its range is claimed.
        """
        prefixes = {_prefix(tp): claim for tp, claim in heads.items()}
        for name in pending:
            if (match := _PENDING.fullmatch(name)) is None:
                continue
            head, claim = prefixes.get(match[1]), Claim.parse(match[2])
            if head and claim and claim.start < head.end and claim.token != head.token:
                self._store.delete(name)

    # --- batches ---------------------------------------------------------------------------------

    def prepare(self, batch: FeedBatch) -> dict[TopicPartition, Claim]:
        """Write the records of each partition durably to a file in ``_pending``.

        Return the claim for each file.
        """
        claims = {
            tp: Claim(part.start, part.end, uuid.uuid4().hex, part.topic_id)
            for tp, part in batch.parts.items()
        }
        names = {tp: _pending_name(tp, claim) for tp, claim in claims.items()}
        try:
            self._each(lambda tp: self._write(names[tp], batch.parts[tp]), names)
            self._store.sync_pending(names.values())  # once for all files, because it is slow
        except BaseException:
            self.discard(claims)
            raise
        return claims

    def _write(self, name: str, part: BatchPart) -> None:
        table = part.table
        options = {
            "use_dictionary": [name for name in table.column_names if name not in _NO_DICTIONARY],
            "write_statistics": [
                name for name in table.column_names if name not in ("key", "value")
            ],
            **self._parquet,
        }
        self._store.write(name, table, options)

    def publish(
        self, batch: FeedBatch, prepared: Mapping[TopicPartition, Claim]
    ) -> Collection[TopicPartition]:
        """Claim the offset range of each part, then move its file to where Spark sees it.

        Return the partitions whose claim failed, because another writer has written them.
        """
        self.discard({tp: claim for tp, claim in prepared.items() if tp not in batch.parts})
        for tp, part in batch.parts.items():
            head = self._heads.get(tp)
            check_topic(self, part, head and head.end, head and head.topic_id, part.topic_id)
        claims = {tp: prepared[tp] for tp in batch.parts}
        results = self._each(lambda tp: self._take(tp, claims[tp]), claims)
        taken = {tp: claims[tp] for tp, success in zip(claims, results, strict=True) if success}
        for tp in taken:  # after all claims are made, and before a file is visible
            self._store.claims.sync(tp)
        self._make_visible(taken)
        self._heads |= taken  # only now: the next claim requires that these files are visible
        refused = claims.keys() - taken.keys()
        self.discard({tp: prepared[tp] for tp in refused})
        return refused

    def _take(self, partition: TopicPartition, claim: Claim) -> bool:
        """Claim the offset range of a pending file. Return whether the claim succeeded."""
        if partition not in self._heads:
            return False
        if not self._store.is_pending(_pending_name(partition, claim)):
            # an earlier attempt has moved the file, or another writer has deleted it
            return self._store.claims.is_head(partition, claim)
        head = self._heads[partition]
        if head is not None and head.end != claim.start:
            return self._store.claims.is_head(partition, claim)
        return self._store.claims.take(partition, head, claim)

    def discard(self, prepared: Mapping[TopicPartition, Claim]) -> None:
        """Delete the files of the batch in ``_pending``."""
        self._each(lambda tp: self._store.delete(_pending_name(tp, prepared[tp])), prepared)

    def _each(
        self, function: Callable[[TopicPartition], _T], partitions: Collection[TopicPartition]
    ) -> list[_T]:
        """Call a function for each partition, in threads if the store is remote."""
        threads = min(self._store.max_requests, len(partitions))
        if threads <= 1:
            return [function(tp) for tp in partitions]
        with ThreadPoolExecutor(threads, "landing") as pool:
            return list(pool.map(function, partitions))


def _prefix(partition: TopicPartition) -> str:
    """Return the start of the names of a partition's pending files.

    The prefix has the same length for all topics.
    """
    return hashlib.sha256(folder_name(partition).encode()).hexdigest()[:32]


def _pending_name(partition: TopicPartition, claim: Claim) -> str:
    return f"{_prefix(partition)}-{claim.name}"


def _names(partition: TopicPartition, claim: Claim) -> tuple[str, str]:
    """Return the two names that the pending file of a claim may have.

    The second name is the one that earlier versions of this package used.
    """
    return _pending_name(partition, claim), claim.token
