"""Iceberg tables: data and offsets in one snapshot, and conflicts between writers."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from asyncconsumer import TopicPartition
from asyncconsumer.errors import ConfigError, SinkOffsetConflict
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.sinks.iceberg import IcebergSink
from asyncconsumer.spark.sinks.iceberg_table import append_files, create_table
from asyncconsumer.spark.sinks.protocol import PreparedBatch
from tests.support.feeder_tables import batch, joined
from tests.support.iceberg_tables import NAME, held, make_sink, options_of
from tests.support.iceberg_tables import catalog as catalog
from tests.support.iceberg_tables import pyiceberg_threads as pyiceberg_threads

pytestmark = pytest.mark.fast

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
APPEND = "asyncconsumer.spark.sinks.iceberg.append_files"
KEY = "asyncconsumer.offsets.asyncconsumer"


def write(sink: IcebergSink, what: FeedBatch) -> set[TopicPartition]:
    return set(sink.publish(what, sink.prepare(what)))


def with_column(what: FeedBatch, name: str, values: pa.Array) -> FeedBatch:
    """Return the batch with one more column."""
    parts = {
        tp: replace(part, build=partial(part.table.append_column, name, values))
        for tp, part in what.parts.items()
    }
    return FeedBatch(parts)


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def append_values(catalog: Catalog, values: list[int]) -> None:
    """Append values as a writer that is not a feeder."""
    table = catalog.load_table(NAME)
    table.append(batch("elsewhere", 0, 0, values).table)


def test_data_and_offsets_are_one_snapshot(catalog: Catalog) -> None:
    sink = make_sink(catalog)
    assert sink.load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    assert write(sink, joined(batch("t", 0, 5, range(3)), batch("t", 1, 0, range(3, 7)))) == set()
    assert make_sink(catalog).load([PLACE, OTHER]) == {PLACE: 8, OTHER: 4}
    assert len(catalog.load_table(NAME).metadata.snapshots) == 1
    assert held(catalog) == list(range(7))


def test_a_batch_that_does_not_start_at_the_tables_offset_is_refused(catalog: Catalog) -> None:
    sink, other = make_sink(catalog), make_sink(catalog)
    write(sink, batch("t", 0, 0, range(10)))
    assert write(other, batch("t", 0, 0, range(10))) == {PLACE}
    both = joined(batch("t", 0, 5, range(5, 15)), batch("t", 1, 0, range(10, 12)))
    assert write(other, both) == {PLACE}  # the other part is written
    assert held(catalog) == list(range(12))


def commit_before(
    monkeypatch: pytest.MonkeyPatch, first: IcebergSink, what: FeedBatch
) -> list[Table]:
    """Have `first` write between the check and the commit of another sink."""
    commits, append = list[Table](), append_files

    def late(table: Table, *arguments: Any) -> None:
        commits.append(table)
        if len(commits) == 1:
            prepared = first.prepare(what)
            assert set(first.publish(what, prepared)) == set()
        append(table, *arguments)

    monkeypatch.setattr(APPEND, late)
    return commits


def test_a_conflicting_commit_is_detected(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a sink that pauses before its commit, which pyiceberg would repeat."""
    sink, zombie = make_sink(catalog), make_sink(catalog)
    write(sink, batch("t", 0, 0, range(10)))
    zombie.load([PLACE])
    commits = commit_before(monkeypatch, sink, batch("t", 0, 10, range(10, 20)))
    assert write(zombie, batch("t", 0, 10, range(10, 15))) == {PLACE}
    assert len(commits) == 2  # the late commit, and the first one
    assert held(catalog) == list(range(20))


def test_a_concurrent_commit_of_another_partition_is_kept(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sink, other = make_sink(catalog), make_sink(catalog)
    write(sink, joined(batch("t", 0, 0, [0]), batch("t", 1, 0, [1])))
    other.load([PLACE])
    commits = commit_before(monkeypatch, sink, batch("t", 1, 1, [2]))
    written = len(files(tmp_path))
    assert write(other, batch("t", 0, 1, [3])) == set()
    assert len(commits) == 3
    assert len(files(tmp_path)) == written + 2  # the conflict did not write its records again
    assert held(catalog) == [0, 1, 2, 3]
    assert make_sink(catalog).load([PLACE, OTHER]) == {PLACE: 2, OTHER: 2}


def test_a_commit_with_a_lost_response_is_not_repeated(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make_sink(catalog)
    write(sink, batch("t", 0, 0, [0]))

    def fails(*arguments: Any) -> None:
        append_files(*arguments)
        raise CommitStateUnknownException("no answer")

    monkeypatch.setattr(APPEND, fails)
    what = batch("t", 0, 1, [1])
    prepared = sink.prepare(what)
    with pytest.raises(CommitStateUnknownException):
        sink.publish(what, prepared)
    monkeypatch.undo()
    assert set(sink.publish(what, prepared)) == {PLACE}  # the feeder continues after the batch
    assert held(catalog) == [0, 1]


def test_merged_batches_are_one_snapshot(catalog: Catalog) -> None:
    sink = make_sink(catalog)
    batches = [batch("t", 0, 0, [0, 1]), batch("t", 0, 2, [2]), batch("t", 1, 0, [3])]
    ready = [PreparedBatch(what, sink.prepare(what)) for what in batches]
    merged = sink.join_batches(sink.join_batches(ready[0], ready[1]), ready[2])
    assert set(sink.publish(*merged)) == set()
    assert len(catalog.load_table(NAME).metadata.snapshots) == 1
    assert held(catalog) == [0, 1, 2, 3]
    assert sink.load([PLACE, OTHER]) == {PLACE: 3, OTHER: 1}


def test_a_refused_part_of_a_merged_batch_does_not_refuse_the_rest(catalog: Catalog) -> None:
    sink, other = make_sink(catalog), make_sink(catalog)
    both = joined(batch("t", 0, 0, [0]), batch("t", 1, 0, [1]))
    more = batch("t", 0, 1, [2])
    merged = sink.join_batches(
        PreparedBatch(both, sink.prepare(both)), PreparedBatch(more, sink.prepare(more))
    )
    write(other, batch("t", 0, 0, [7, 8]))
    assert set(sink.publish(*merged)) == {PLACE}
    assert held(catalog) == [1, 7, 8]


def test_files_of_a_discarded_batch_are_deleted(catalog: Catalog, tmp_path: Path) -> None:
    sink = make_sink(catalog)
    prepared = sink.prepare(batch("t", 0, 0, range(10)))
    assert files(tmp_path) != []
    sink.discard(prepared)
    assert files(tmp_path) == []


def test_offsets_are_loaded_though_the_last_snapshot_is_of_another(catalog: Catalog) -> None:
    sink = make_sink(catalog)
    write(sink, batch("t", 0, 0, range(3)))
    append_values(catalog, [7])
    append_values(catalog, [8])
    assert make_sink(catalog).load([PLACE]) == {PLACE: 3}
    assert write(sink, batch("t", 0, 3, [3])) == set()
    assert write(sink, batch("t", 0, 3, [3])) == {PLACE}
    assert held(catalog) == [0, 1, 2, 3, 7, 8]


def test_offsets_are_loaded_after_their_snapshots_expired(catalog: Catalog) -> None:
    write(make_sink(catalog), batch("t", 0, 0, range(3)))
    append_values(catalog, [7])
    table = catalog.load_table(NAME)
    first = table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert len(catalog.load_table(NAME).metadata.snapshots) == 1
    assert make_sink(catalog).load([PLACE]) == {PLACE: 3}


def test_a_rolled_back_table_has_the_offsets_of_its_snapshot(catalog: Catalog) -> None:
    sink = make_sink(catalog)
    write(sink, batch("t", 0, 0, range(3)))
    write(sink, batch("t", 0, 3, range(3, 6)))
    table = catalog.load_table(NAME)
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert held(catalog) == [0, 1, 2]
    assert make_sink(catalog).load([PLACE]) == {PLACE: 3}
    assert write(sink, batch("t", 0, 6, [6])) == {PLACE}
    assert write(sink, batch("t", 0, 3, [3])) == set()
    assert held(catalog) == [0, 1, 2, 3]


def test_another_app_has_offsets_of_its_own(catalog: Catalog) -> None:
    write(make_sink(catalog), batch("t", 0, 0, range(3)))
    other = make_sink(catalog, app="other")
    assert other.load([PLACE]) == {PLACE: None}
    write(other, batch("t", 0, 0, range(5)))
    assert make_sink(catalog).load([PLACE]) == {PLACE: 3}


def test_a_re_created_topic_is_refused(catalog: Catalog) -> None:
    write(make_sink(catalog), batch("t", 0, 0, range(3), topic_id=UUID(int=1)))
    sink = make_sink(catalog)
    assert write(sink, batch("t", 0, 3, [3], topic_id=UUID(int=1))) == set()
    assert write(sink, batch("t", 0, 4, [4])) == set()  # a broker without ids
    with pytest.raises(SinkOffsetConflict):
        write(sink, batch("t", 0, 5, [5], topic_id=UUID(int=2)))


def test_a_new_table_has_the_configured_partitions(catalog: Catalog, tmp_path: Path) -> None:
    fields = ["topic", "day(timestamp)", "bucket(4, key)", "truncate(2, value)"]
    sink = make_sink(catalog, partition_by=fields, properties={"owner": "lake"})
    write(sink, joined(batch("t", 0, 0, range(3)), batch("u", 0, 0, [3])))
    table = catalog.load_table(NAME)
    names = [f"{field.name} {field.transform}" for field in table.spec().fields]
    assert names == [
        "topic identity",
        "timestamp_day day",
        "key_bucket bucket[4]",
        "value_truncate truncate[2]",
    ]
    assert table.properties["owner"] == "lake"
    assert {path.relative_to(tmp_path).parts[4] for path in files(tmp_path)} == {
        "topic=t",
        "topic=u",
    }
    assert held(catalog) == [0, 1, 2, 3]


def test_an_unknown_partition_field_is_reported(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match="no transform 'week'"):
        write(make_sink(catalog, partition_by=["week(timestamp)"]), batch("t", 0, 0, [0]))


def test_a_prepared_batch_uses_a_changed_partition_spec(catalog: Catalog, tmp_path: Path) -> None:
    sink = make_sink(catalog)
    write(sink, batch("t", 0, 0, [0]))
    what = batch("t", 0, 1, [1])
    prepared = sink.prepare(what)
    with catalog.load_table(NAME).update_spec() as spec:
        spec.add_identity("topic")
    sink.load([PLACE])  # as after any commit of another writer
    assert set(sink.publish(what, prepared)) == set()
    assert [path for path in files(tmp_path) if "topic=t" in path.parts] != []
    assert held(catalog) == [0, 1]


def test_an_existing_table_keeps_its_columns(catalog: Catalog) -> None:
    write(make_sink(catalog, app="before"), batch("t", 0, 0, [0]))
    with catalog.load_table(NAME).update_schema() as update:
        update.add_column("country", StringType())
        update.move_first("value")
    assert write(make_sink(catalog), batch("t", 0, 0, [1])) == set()
    rows = catalog.load_table(NAME).scan().to_arrow()
    assert rows.column_names[0] == "value"
    assert rows["country"].null_count == 2
    assert held(catalog) == [0, 1]


def test_new_columns_need_evolve_schema(catalog: Catalog) -> None:
    write(make_sink(catalog), batch("t", 0, 0, [0]))
    more = with_column(batch("t", 0, 1, [1]), "amount", pa.array([5], pa.int64()))
    with pytest.raises(ConfigError, match=r"evolve_schema=True(?s:.*)amount"):
        write(make_sink(catalog), more)
    sink = make_sink(catalog, evolve_schema=True)
    assert write(sink, more) == set()
    assert write(sink, batch("t", 0, 2, [2])) == set()  # without the column again
    rows = catalog.load_table(NAME).scan().to_arrow()
    assert sorted(rows["amount"].to_pylist(), key=str) == [5, None, None]
    assert isinstance(catalog.load_table(NAME).schema().find_type("amount"), LongType)


def test_a_column_of_another_type_is_an_error(catalog: Catalog) -> None:
    first = with_column(batch("t", 0, 0, [0]), "amount", pa.array([5], pa.int64()))
    write(make_sink(catalog), first)
    other = with_column(batch("t", 0, 1, [1]), "amount", pa.array(["five"], pa.string()))
    with pytest.raises(ConfigError, match="do not fit into the Iceberg table"):
        write(make_sink(catalog, evolve_schema=True), other)


def test_two_concurrent_writers_create_one_table(catalog: Catalog) -> None:
    sink, other = make_sink(catalog), make_sink(catalog)
    first, then = batch("t", 0, 0, [0]), batch("t", 1, 0, [1])
    assert sink._newest() is None
    assert write(other, then) == set()
    table = create_table(catalog, NAME, first.table.schema, (), {})
    assert table.current_snapshot() is not None  # that of the other writer
    assert write(sink, first) == set()
    assert held(catalog) == [0, 1]


def test_a_catalog_is_loaded_by_name_and_options(catalog: Catalog, tmp_path: Path) -> None:
    sink = IcebergSink(NAME, catalog="test", catalog_options=options_of(tmp_path))
    sink.open()
    assert write(sink, batch("t", 0, 0, [0])) == set()
    assert held(catalog) == [0]
    assert isinstance(sink._catalog, Catalog)
    sink._catalog.close()


def test_invalid_offsets_in_a_table_are_reported(catalog: Catalog) -> None:
    write(make_sink(catalog), batch("t", 0, 0, [0]))
    table = catalog.load_table(NAME)
    table.append(batch("t", 0, 0, [1]).table, snapshot_properties={KEY: "[1]"})
    with pytest.raises(ConfigError, match=r"lake\.orders has offsets that no feeder wrote"):
        make_sink(catalog).load([PLACE])
