"""A folder of Parquet files for a Spark file stream. Each record is in exactly one file.

    spark.readStream.schema(...).parquet("landing")

The folder has two subfolders that Spark ignores, because their names begin with an underscore. A
writer first writes a file into ``_pending``. Then it claims the file's range of offsets in
``_claims``. That claim is the commit, see `asyncconsumer.spark.sinks.claims`. Finally the writer
moves the file to where Spark sees it. If it dies before, the next writer moves the file. No writer
claims a range whose preceding file is not visible yet.
"""

import contextlib
import hashlib
import os
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.feeder.batches import BatchPart, FeedBatch, range_name
from asyncconsumer.spark.sinks.claims import Claim, RangeClaims, file_name, folder_name, sync
from asyncconsumer.spark.sinks.local_paths import local_path
from asyncconsumer.spark.sinks.protocol import check_topic
from asyncconsumer.types import TopicPartition

_PENDING: Final = re.compile(r"([0-9a-f]{32})-(.+)")
_NO_DICTIONARY: Final = ("offset", "timestamp", "key", "value")  # slow, and of little use


class LandingFolder:
    """A sink of Parquet files in a local or network folder.

    The file system must rename atomically, as local ones and NFS do. Object stores do not: use
    `DeltaSink` for them. File names contain topic, partition and offsets. Files may be moved or
    deleted after they were read (Spark's ``cleanSource``), because offsets are kept in
    ``_claims``. `parquet` are options of `pyarrow.parquet.write_table`.
    """

    remembers: Final = True
    apart: Final = False

    def __init__(self, folder: str | os.PathLike[str], **parquet: Any) -> None:  # noqa: ANN401
        self.folder: Final = local_path(folder, "LandingFolder")
        self._parquet = {"compression": "zstd", **parquet}
        self._claims = RangeClaims(self.folder / "_claims", self.folder / "_offsets")
        self._heads: dict[TopicPartition, Claim | None] = {}  # their files are visible

    def __str__(self) -> str:
        return f"the landing folder {self.folder}"

    @property
    def _pending(self) -> Path:
        return self.folder / "_pending"

    def open(self) -> None:
        """Create the landing folder and its subfolders."""
        for folder in (self.folder, self._pending, self._claims.folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise ConfigError(f"{folder} is a file. LandingFolder needs a folder.") from None
        sync(self.folder)

    # --- offsets ---------------------------------------------------------------------------------

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the end of each partition's last claim, or None without a claim.

        Move or delete the files that dead writers left.
        """
        heads = self._claims.heads(partitions)
        claims = {tp: head for tp, head in heads.items() if head is not None}
        for tp, claim in claims.items():
            if self._pending_file(tp, claim) is not None:
                self._claims.sync(tp)  # its writer may have died before it was durable
        self._make_visible(claims)
        self._delete_stale(claims)
        self._heads |= heads
        return {tp: head and head.end for tp, head in heads.items()}

    def _pending_file(self, partition: TopicPartition, claim: Claim) -> Path | None:
        """Return the path of a claimed file in ``_pending``, or None if it has left it."""
        names = _pending_name(partition, claim), claim.token  # as in earlier versions
        files = (self._pending / name for name in names)
        return next((file for file in files if file.exists()), None)

    def _make_visible(self, claims: Mapping[TopicPartition, Claim]) -> None:
        """Move the claimed files to where Spark sees them, unless another writer has moved them."""
        moved = 0
        for tp, claim in claims.items():
            suffix = f"{range_name(tp, claim.start, claim.end)}.parquet"
            visible = self.folder / file_name("kafka-", tp.topic, suffix)
            if (pending := self._pending_file(tp, claim)) is not None:
                with contextlib.suppress(FileNotFoundError):
                    pending.rename(visible)
                    moved += 1
        if moved:
            sync(self.folder)

    def _delete_stale(self, heads: Mapping[TopicPartition, Claim]) -> None:
        """Delete pending files that begin before the end of the partition's last claim.

        They cannot be claimed any more. A file that begins later may belong to a live writer. It
        stays until its range is claimed.
        """
        prefixes = {_prefix(tp): claim for tp, claim in heads.items()}
        for name in os.listdir(self._pending):  # noqa: PTH208
            if (match := _PENDING.fullmatch(name)) is None:
                continue
            head, claim = prefixes.get(match[1]), Claim.parse(match[2])
            if head and claim and claim.start < head.end and claim.token != head.token:
                (self._pending / name).unlink(missing_ok=True)

    # --- batches ---------------------------------------------------------------------------------

    def prepare(self, batch: FeedBatch) -> dict[TopicPartition, Claim]:
        """Write the records of each partition durably to a file in ``_pending``.

        Return the claim for each file.
        """
        claims = {
            tp: Claim(part.start, part.end, uuid.uuid4().hex, part.topic_id)
            for tp, part in batch.parts.items()
        }
        files = {tp: self._pending / _pending_name(tp, claim) for tp, claim in claims.items()}
        try:
            for tp, part in batch.parts.items():
                self._write(files[tp], part)
            for file in files.values():  # after all are written: one sync serves many
                with contextlib.suppress(FileNotFoundError):  # another writer deleted it
                    sync(file)
        except BaseException:
            self.discard(claims)
            raise
        sync(self._pending)
        return claims

    def _write(self, path: Path, part: BatchPart) -> None:
        table = part.table
        options = {
            "use_dictionary": [name for name in table.column_names if name not in _NO_DICTIONARY],
            "write_statistics": [
                name for name in table.column_names if name not in ("key", "value")
            ],
            **self._parquet,
        }
        pq.write_table(table, str(path), **options)

    def publish(
        self, batch: FeedBatch, prepared: Mapping[TopicPartition, Claim]
    ) -> Collection[TopicPartition]:
        """Claim the range of each part in order, and move its file to where Spark sees it.

        Return the partitions whose claim failed.
        """
        self.discard({tp: claim for tp, claim in prepared.items() if tp not in batch.parts})
        for tp, part in batch.parts.items():
            head = self._heads.get(tp)
            check_topic(self, part, head and head.end, head and head.topic_id, part.topic_id)
        claims = {tp: prepared[tp] for tp in batch.parts}
        taken = {tp: claim for tp, claim in claims.items() if self._take(tp, claim)}
        for tp in taken:  # after all claims are made, and before a file is visible
            self._claims.sync(tp)
        self._make_visible(taken)
        self._heads |= taken  # only now: the next claim requires that these files are visible
        refused = claims.keys() - taken.keys()
        self.discard({tp: prepared[tp] for tp in refused})
        return refused

    def _take(self, partition: TopicPartition, claim: Claim) -> bool:
        """Claim a range of offsets. Return whether the claim succeeded."""
        if partition not in self._heads:
            return False
        if self._pending_file(partition, claim) is None:  # moved by an earlier attempt, or deleted
            return self._claims.is_head(partition, claim)
        head = self._heads[partition]
        if head is not None and head.end != claim.start:
            return self._claims.is_head(partition, claim)
        return self._claims.take(partition, head, claim)

    def discard(self, prepared: Mapping[TopicPartition, Claim]) -> None:
        """Delete the files of the batch in ``_pending``."""
        for tp, claim in prepared.items():
            (self._pending / _pending_name(tp, claim)).unlink(missing_ok=True)


def _prefix(partition: TopicPartition) -> str:
    """Return the start of the names of a partition's pending files.

    It has the same length for all topics.
    """
    return hashlib.sha256(folder_name(partition).encode()).hexdigest()[:32]


def _pending_name(partition: TopicPartition, claim: Claim) -> str:
    return f"{_prefix(partition)}-{claim.name}"
