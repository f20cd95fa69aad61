"""A sink for Iceberg tables, written by pyiceberg without a Spark job per batch."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.feeder.batches import APP, FeedBatch
from asyncconsumer.spark.sinks.iceberg_offsets import TableOffsets, recorded_offsets
from asyncconsumer.spark.sinks.iceberg_table import (
    CommitConflict,
    append_files,
    create_table,
    fit_columns,
    load_catalog,
    load_table,
    write_files,
)
from asyncconsumer.spark.sinks.protocol import PreparedBatch, check_topic, refused
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_MAX_CONFLICTS: Final = 20


@dataclass(frozen=True)
class WrittenBatch:
    """A batch whose data files are written and belong to no snapshot yet."""

    batch: FeedBatch
    files: "tuple[DataFile, ...]"
    spec_id: int  # of the partitioning that the files follow
    io: "FileIO"


class IcebergSink:
    """A sink that appends batches to an Iceberg table. The first batch creates a missing table.

    `table` is the name with its namespace, such as ``lake.orders``. `catalog` is a catalog of
    pyiceberg, or the name of one. A name is loaded with `catalog_options`, and with the settings of
    that name in pyiceberg's configuration file and environment variables.

    Data files are written in parallel. A commit adds them in one snapshot, whose summary has the
    offset after the last record of every partition. A commit succeeds only on the snapshot whose
    offsets the sink has checked. After a commit of another writer the sink checks the new snapshot,
    and refuses records that it has already. A table that is rolled back has the offsets of the
    older snapshot, so the records after it are written again.

    The same offsets are a property of the table, because snapshots expire. The key of the offsets
    in both places contains `app`, the writer's name.

    `partition_by` and `properties` apply when the sink creates the table. The fields are those of
    Spark's PARTITIONED BY, such as ``topic``, ``day(timestamp)`` or ``bucket(16, key)``. A table
    that exists keeps its columns and partitions. Columns are matched by name, and columns that a
    batch does not have are null. With ``evolve_schema=True`` columns that the table does not have
    are added to it. Otherwise they are an error.

    A crash can leave data files that belong to no snapshot. Iceberg's removal of orphan files
    deletes them.
    """

    remembers: Final = True
    apart: Final = False

    def __init__(
        self,
        table: str,
        *,
        catalog: "Catalog | str" = "default",
        catalog_options: Mapping[str, str] | None = None,
        app: str = APP,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        evolve_schema: bool = False,
    ) -> None:
        self.name: Final = table
        self._catalog = catalog
        self._catalog_options = dict(catalog_options or {})
        self._key = f"{APP}.offsets.{app}"
        self._partition_by = tuple(partition_by)
        self._properties = dict(properties or {})
        self._evolve_schema = evolve_schema
        self._table: Table | None = None  # as of the last look or commit
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"the Iceberg table {self.name}"

    def open(self) -> None:
        """Connect to the catalog. Raise an error if the table exists and cannot be read."""
        with self._lock:
            self._newest()

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the offset after each partition's data in the newest snapshot.

        The offset is None for a partition that the sink has not written.
        """
        with self._lock:
            table = self._newest()
            recorded = TableOffsets() if table is None else recorded_offsets(table, self._key)
        return {tp: recorded.ends.get(tp) for tp in partitions}

    def prepare(self, batch: FeedBatch) -> tuple[WrittenBatch, ...]:
        """Write the data files of the batch. Create the table or its columns if necessary."""
        rows = batch.table
        with self._lock:
            table = self._for_rows(rows.schema)
            metadata, io = table.metadata, table.io
        files = write_files(metadata, io, rows)
        return (WrittenBatch(batch, files, metadata.default_spec_id, io),)

    def join_batches(self, first: PreparedBatch, second: PreparedBatch) -> PreparedBatch:
        """Return both prepared batches as one, so that a single commit adds them."""
        return PreparedBatch(first.batch.joined(second.batch), first.prepared + second.prepared)

    def publish(
        self, batch: FeedBatch, prepared: Sequence[WrittenBatch]
    ) -> Collection[TopicPartition]:
        """Commit the data files of the parts that begin at the partition's offset in the table.

        Return the partitions of the other parts, which are not committed.
        """
        with self._lock:
            for remaining in range(_MAX_CONFLICTS, -1, -1):
                table, recorded = self._unless_outdated(batch)
                for tp, part in batch.parts.items():
                    topic_id = recorded.topic_ids.get(tp.topic)
                    check_topic(self, part, recorded.ends.get(tp), topic_id, part.topic_id)
                rejected = refused(batch, recorded.ends)
                accepted = batch.without(rejected)
                if not accepted.parts:
                    return rejected
                files = _files(table, accepted, prepared)
                offsets = {self._key: recorded.after(accepted).to_json()}
                self._table = None  # unknown after an error, because the commit may have succeeded
                try:
                    append_files(table, files, offsets)
                except CommitConflict:  # another commit was first: check the offsets in it
                    if not remaining:
                        raise
                else:
                    self._table = table
                    return rejected
        raise AssertionError("unreachable")

    def discard(self, prepared: Iterable[WrittenBatch]) -> None:
        """Delete the data files of a batch that was never published."""
        for written in prepared:
            for file in written.files:
                written.io.delete(file.file_path)

    # --- the table -------------------------------------------------------------------------------

    def _newest(self) -> "Table | None":
        if isinstance(self._catalog, str):
            self._catalog = load_catalog(self._catalog, **self._catalog_options)
        self._table = load_table(self._catalog, self.name)
        return self._table

    def _unless_outdated(self, batch: FeedBatch) -> "tuple[Table, TableOffsets]":
        """Return the table and its offsets.

        Return the state after the sink's last commit if the batch begins at its offsets. Otherwise
        load the newest state. Raise ConfigError if the table was dropped.
        """
        table = self._table
        if table is not None:
            recorded = recorded_offsets(table, self._key)
            if not refused(batch, recorded.ends) and recorded.ends.keys() >= batch.parts.keys():
                return table, recorded
        if (table := self._newest()) is None:
            raise ConfigError(
                f"{self} was dropped after its data files were written. Restart the feeder to "
                "create it again."
            )
        return table, recorded_offsets(table, self._key)

    def _for_rows(self, schema: "pa.Schema") -> "Table":
        """Return the table with all columns of `schema`, which is the schema of the rows to write.

        Create the table if it does not exist. Add missing columns with ``evolve_schema=True``, and
        otherwise raise ConfigError.
        """
        table = self._table or self._newest()
        if table is None:
            assert not isinstance(self._catalog, str)
            table = create_table(
                self._catalog, self.name, schema, self._partition_by, self._properties
            )
        self._table = None  # unknown after an error
        fit_columns(table, schema, evolve=self._evolve_schema)
        self._table = table
        return table


def _files(
    table: "Table", accepted: FeedBatch, prepared: Iterable[WrittenBatch]
) -> "list[DataFile]":
    """Return the data files with the records of `accepted`.

    `accepted` has all or some parts of the batches in `prepared`. The data files of such a batch
    are written again if they contain rejected records, or if the table's partitioning has changed.
    """
    files: list[DataFile] = []
    metadata = table.metadata
    for written in prepared:
        rejected = written.batch.parts.keys() - accepted.parts.keys()
        rest = written.batch.without(rejected)
        if not rejected and written.spec_id == metadata.default_spec_id:
            files += written.files
        elif rest.parts:
            files += write_files(metadata, table.io, rest.table)
    return files
