"""A sink for Delta tables, written by delta-rs without a Spark job per batch."""

import logging
import os
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

try:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError
except ImportError as error:
    raise ImportError("DeltaSink needs deltalake: pip install 'asyncconsumer[delta]'") from error

from asyncconsumer.spark.feeder.batches import FeedBatch, app_id
from asyncconsumer.spark.sinks.protocol import PreparedBatch, check_topic, refused
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger(__name__)
_MAX_CONFLICTS: Final = 20
_CREATE_OPTIONS: Final = ("partition_by", "name", "description", "configuration")
_DROPPED_ID_BITS: Final = 128 - 63  # a transaction version is a positive number of 64 bits
_WAYS_TO_COMMIT: Final = {"conditional_put", "s3_locking_provider", "s3_allow_unsafe_rename"}
_HISTORY_LIMIT: Final = 10  # commits, to find a RESTORE before an OPTIMIZE or VACUUM
_COMMITS_PER_RELOAD: Final = 50  # each commit costs more than the last, until a reload


class DeltaSink:
    """A sink that appends batches to a Delta table. The first batch creates a missing table.

    Each commit carries one application transaction for each of its partitions. The version of this
    transaction is the offset after the partition's last record. The sink compares it with the start
    of the next batch. If another writer with the same `app` has committed meanwhile, delta-rs
    refuses the commit, and the sink compares again.

    The first commit of a topic also stores the topic's id. With the id the sink detects a
    re-created topic, and raises `SinkOffsetConflict`.

    When a table is restored to an earlier version (RESTORE), Delta keeps its application
    transactions. The sink then continues after the last offsets that it wrote before, so records
    of later versions stay missing. `load` logs a warning if nothing was written since. To write
    those records again, reset the group's offsets and give the sink another `app`. The table has
    no offsets for the new name, so the sink begins at the group's offsets.

    `storage_options` are those of delta-rs, for tables in an object store. On S3 commits are
    conditional writes, unless the options name a locking provider. `writing` are further
    options of `deltalake.write_deltalake`. Some of them also apply when the table is created.
    """

    remembers: Final = True
    apart: Final = False

    def __init__(
        self,
        table: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        app: str = "asyncconsumer",
        **writing: Any,  # noqa: ANN401 - delta-rs checks them
    ) -> None:
        self.uri: Final = str(table)
        self._options = _with_conditional_put(self.uri, storage_options)
        self._app = app
        self._writing = writing
        self._table: DeltaTable | None = None
        self._commits = 0
        self._ends: dict[TopicPartition, int | None] = {}  # known offsets in that snapshot
        self._topics: dict[str, int | None] = {}  # topic ids in that snapshot
        self._lock = threading.Lock()  # a `DeltaTable` is not thread-safe

    def __str__(self) -> str:
        return f"the Delta table {self.uri}"

    def open(self) -> None:
        """Raise an error if the table exists and cannot be read."""
        with self._lock:
            self._newest()

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the offset after each partition's data in the newest snapshot.

        The offset is None for a partition that the sink has not written.
        """
        with self._lock:
            table = self._newest()
            ends = self._read_ends(table, partitions)
            if table is not None and any(end is not None for end in ends.values()):
                self._warn_if_restored(table)
            return ends

    def _warn_if_restored(self, table: DeltaTable) -> None:
        for commit in table.history(_HISTORY_LIMIT):  # the newest one first
            if commit.get("operation") == "RESTORE":
                _log.warning(
                    "%s was restored to an earlier version after it was last written, and its "
                    "offsets were not; records of later versions are missing and are not written "
                    "again; the documentation of DeltaSink explains how to write them again",
                    self,
                )
            if commit.get("operation") in ("RESTORE", "WRITE"):
                return

    def prepare(self, batch: FeedBatch) -> "pa.Schema":
        """Build the Arrow table of the batch, and return its schema.

        delta-rs writes files and commits in one call, in `publish`.
        """
        return batch.table.schema

    def join_batches(self, first: PreparedBatch, second: PreparedBatch) -> PreparedBatch | None:
        """Return both batches merged for one commit, or None if their columns differ.

        Merging saves time, because a commit takes as long as writing some 50,000 records, and
        longer if the table has a long log.
        """
        if first.prepared != second.prepared:
            return None
        return PreparedBatch(first.batch.joined(second.batch), first.prepared)

    def publish(self, batch: FeedBatch, prepared: object) -> Collection[TopicPartition]:
        """Append the parts of the batch that begin at the partition's offset in the table.

        Return the partitions of the other parts, which are not written. Raise SinkOffsetConflict if
        a topic was re-created.
        """
        with self._lock:
            for remaining in range(_MAX_CONFLICTS, -1, -1):
                table = self._current_table(batch)
                for tp, part in batch.parts.items():
                    recorded_id, part_id = self._topics[tp.topic], _number(part.topic_id)
                    check_topic(self, part, self._ends[tp], recorded_id, part_id)
                rejected = refused(batch, self._ends)
                if len(rejected) == len(batch.parts):
                    return rejected
                try:
                    self._append(table, batch.without(rejected))
                except CommitFailedError:  # another commit was first: retry on its snapshot
                    if not remaining:
                        raise
                else:
                    return rejected
        raise AssertionError("unreachable")

    def discard(self, prepared: object) -> None:
        """Do nothing: `prepare` has written nothing."""

    def _current_table(self, batch: FeedBatch) -> DeltaTable:
        """Return a snapshot of the table, and cache its offsets and topic ids.

        Return the cached snapshot if the batch begins at its offsets. Otherwise load the newest
        one. Create the table if it does not exist.
        """
        known = self._ends.keys() >= batch.parts.keys() and not refused(batch, self._ends)
        known = known and self._topics.keys() >= _topic_ids(batch).keys()
        if self._table is not None and known and self._commits % _COMMITS_PER_RELOAD:
            return self._table
        table = self._newest() or self._create(batch)
        self._read_ends(table, batch.parts)
        topics = self._topics.keys() | _topic_ids(batch).keys()
        self._topics = {topic: self._version(table, self._id_app(topic)) for topic in topics}
        return table

    def _id_app(self, topic: str) -> str:
        """Return the Delta application id under which the topic's id is stored."""
        return f"{self._app}:{topic}:id"

    def _read_ends(
        self, table: DeltaTable | None, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the offset after each partition's data in the snapshot `table`.

        Also replace all cached offsets, even those of other partitions, by those of the snapshot.
        """
        ends = self._recorded(table, partitions)
        self._ends = self._recorded(table, self._ends.keys() - ends.keys()) | ends
        return ends

    def _append(self, table: DeltaTable, batch: FeedBatch) -> None:
        versions = [
            Transaction(app_id(self._app, p.partition), p.end) for p in batch.parts.values()
        ]
        ids, recorded = _topic_ids(batch), self._topics
        new = {topic: n for topic, n in ids.items() if n is not None and recorded[topic] is None}
        versions += [Transaction(self._id_app(topic), number) for topic, number in new.items()]
        # cleared first, because a commit that raises may have succeeded
        ends, self._ends = self._ends, {}
        self._topics = {}
        before = table.version()
        write_deltalake(
            table,
            batch.table,
            mode="append",
            commit_properties=CommitProperties(app_transactions=versions),
            **self._writing,
        )
        self._commits += 1
        if table.version() == before + 1:  # otherwise `table` includes other writers' commits
            self._ends = ends | {tp: part.end for tp, part in batch.parts.items()}
            self._topics = {**recorded, **new}

    def _newest(self) -> DeltaTable | None:
        if self._table is not None and self._commits % _COMMITS_PER_RELOAD:
            self._table.update_incremental()
        elif DeltaTable.is_deltatable(self.uri, self._options):
            self._table = DeltaTable(self.uri, storage_options=self._options)
        return self._table

    def _create(self, batch: FeedBatch) -> DeltaTable:
        options = {name: self._writing[name] for name in _CREATE_OPTIONS if name in self._writing}
        self._table = DeltaTable.create(
            self.uri, batch.table.schema, mode="ignore", storage_options=self._options, **options
        )
        return self._table

    def _recorded(
        self, table: DeltaTable | None, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        return {tp: self._version(table, app_id(self._app, tp)) for tp in partitions}

    @staticmethod
    def _version(table: DeltaTable | None, name: str) -> int | None:
        return None if table is None else table.transaction_version(name)


def _with_conditional_put(
    uri: str, storage_options: Mapping[str, str] | None
) -> dict[str, str] | None:
    """Return the storage options, with conditional writes enabled for a table on S3.

    The options are unchanged if they name another way to commit. Return None for no options.
    """
    options = dict(storage_options or {})
    names = {name.lower().removeprefix("aws_") for name in (*options, *os.environ)}
    if uri.startswith(("s3://", "s3a://")) and not names & _WAYS_TO_COMMIT:
        options["aws_conditional_put"] = "etag"
    return options or None


def _topic_ids(batch: FeedBatch) -> dict[str, int | None]:
    """Return the id of each topic in the batch as a number, or None if it is unknown."""
    return {tp.topic: _number(part.topic_id) for tp, part in batch.parts.items()}


def _number(topic_id: UUID | None) -> int | None:
    return None if topic_id is None else topic_id.int >> _DROPPED_ID_BITS
