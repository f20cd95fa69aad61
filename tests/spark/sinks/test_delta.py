"""Delta tables: data and offsets in one commit, and conflicts between writers."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from asyncconsumer import TopicPartition
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.sinks import delta
from asyncconsumer.spark.sinks.delta import DeltaSink
from tests.support.delta_runtime import delta_rs as delta_rs
from tests.support.feeder_tables import batch, joined, numbers

pytestmark = pytest.mark.fast


PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def make_sink(folder: Path, **options: Any) -> DeltaSink:
    sink = DeltaSink(str(folder), **options)
    sink.open()
    return sink


def write(sink: DeltaSink, what: FeedBatch) -> set[TopicPartition]:
    return set(sink.publish(what, sink.prepare(what)))


def record_reads(monkeypatch: pytest.MonkeyPatch) -> list[DeltaSink]:
    """Return a list that grows by each sink that reads the table."""
    reads, newest = list[DeltaSink](), DeltaSink._newest

    def recorded(self: DeltaSink) -> DeltaTable | None:
        reads.append(self)
        return newest(self)

    monkeypatch.setattr(DeltaSink, "_newest", recorded)
    return reads


def held(folder: Path) -> list[int]:
    return numbers(DeltaTable(str(folder)).to_pyarrow_table(columns=["value"]))


def test_data_and_offsets_are_one_commit(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    assert sink.load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    assert write(sink, joined(batch("t", 0, 5, range(3)), batch("t", 1, 0, range(3, 7)))) == set()
    assert make_sink(tmp_path).load([PLACE, OTHER]) == {PLACE: 8, OTHER: 4}
    assert DeltaTable(str(tmp_path)).version() == 1  # version 0 is the creation
    assert held(tmp_path) == list(range(7))


def test_a_batch_that_does_not_start_at_the_tables_offset_is_refused(tmp_path: Path) -> None:
    sink, other = make_sink(tmp_path), make_sink(tmp_path)
    write(sink, batch("t", 0, 0, range(10)))
    assert write(other, batch("t", 0, 0, range(10))) == {PLACE}
    both = joined(batch("t", 0, 5, range(5, 15)), batch("t", 1, 0, range(10, 12)))
    assert write(other, both) == {PLACE}  # the other part is written
    assert held(tmp_path) == list(range(12))


def test_a_conflicting_commit_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a sink that pauses between its read and its write."""
    sink, zombie = make_sink(tmp_path), make_sink(tmp_path)
    write(sink, batch("t", 0, 0, range(10)))
    refusals, append = list[str](), DeltaSink._append

    def late(self: DeltaSink, table: DeltaTable, what: FeedBatch) -> None:
        if self is zombie and not refusals:
            write(sink, batch("t", 0, 10, range(10, 20)))
        try:
            append(self, table, what)
        except CommitFailedError as error:
            refusals.append(str(error))
            raise

    monkeypatch.setattr(DeltaSink, "_append", late)
    assert write(zombie, batch("t", 0, 10, range(10, 15))) == {PLACE}
    assert len(refusals) == 1
    assert held(tmp_path) == list(range(20))


def test_a_concurrent_commit_of_another_partition_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, other = make_sink(tmp_path), make_sink(tmp_path)
    write(sink, joined(batch("t", 0, 0, [0]), batch("t", 1, 0, [1])))
    meanwhile, append = [batch("t", 1, 1, [2])], DeltaSink._append

    def late(self: DeltaSink, table: DeltaTable, what: FeedBatch) -> None:
        if self is other and meanwhile:
            write(sink, meanwhile.pop())
        append(self, table, what)

    monkeypatch.setattr(DeltaSink, "_append", late)
    assert write(other, batch("t", 0, 1, [3])) == set()
    assert held(tmp_path) == [0, 1, 2, 3]


def test_a_single_writer_reads_the_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the number of reads, because a read of the log takes as long as a commit."""
    sink = make_sink(tmp_path)
    reads = record_reads(monkeypatch)
    for offset in range(5):
        assert (
            write(
                sink, joined(batch("t", 0, offset, [offset]), batch("t", 1, offset, [5 + offset]))
            )
            == set()
        )
    assert len(reads) == 1
    assert write(sink, batch("t", 0, 3, [99])) == {PLACE}
    assert len(reads) == 2  # a cached value does not refuse a batch
    assert held(tmp_path) == list(range(10))


def test_offsets_of_several_topics_are_read_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make_sink(tmp_path)
    reads = record_reads(monkeypatch)
    for offset in range(5):
        for number, topic in enumerate("tuv"):
            what = batch(topic, 0, offset, [offset], topic_id=UUID(int=number))
            assert write(sink, what) == set()
    assert len(reads) == 3  # one for each topic


def test_commits_of_others_before_the_own_one_are_detected(tmp_path: Path) -> None:
    """Check commits in the sink's own snapshot. delta-rs reports no conflict for them."""
    sink, other = make_sink(tmp_path), make_sink(tmp_path)
    write(sink, joined(batch("t", 0, 0, [0]), batch("t", 1, 0, [1])))
    write(other, batch("t", 0, 1, [2]))
    assert write(sink, batch("t", 1, 1, [3])) == set()
    assert write(sink, batch("t", 0, 1, [2])) == {PLACE}
    assert held(tmp_path) == [0, 1, 2, 3]


def test_a_commit_with_a_lost_response_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make_sink(tmp_path)
    write(sink, batch("t", 0, 0, [0]))

    def fails(*arguments: Any, **options: Any) -> None:
        write_deltalake(*arguments, **options)
        raise OSError("no answer")

    monkeypatch.setattr(delta, "write_deltalake", fails)
    with pytest.raises(OSError, match="no answer"):
        write(sink, batch("t", 0, 1, [1]))
    monkeypatch.undo()
    assert write(sink, batch("t", 0, 1, [1])) == {PLACE}
    assert held(tmp_path) == [0, 1]


def test_a_new_table_has_the_configured_properties(tmp_path: Path) -> None:
    properties = {"delta.logRetentionDuration": "interval 2 days"}
    sink = make_sink(tmp_path, partition_by=["topic"], configuration=properties, name="orders")
    assert write(sink, batch("t", 0, 0, range(3))) == set()
    assert write(sink, batch("t", 0, 3, range(3, 5))) == set()
    metadata = DeltaTable(str(tmp_path)).metadata()
    assert metadata.partition_columns == ["topic"]
    assert metadata.configuration == properties
    assert metadata.name == "orders"
    assert held(tmp_path) == list(range(5))


def test_each_app_has_offsets_of_its_own(tmp_path: Path) -> None:
    write(make_sink(tmp_path), batch("t", 0, 0, range(3)))
    assert make_sink(tmp_path, app="another").load([PLACE]) == {PLACE: None}


def test_a_restored_table_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = make_sink(tmp_path)
    sink.load([PLACE])
    for start in (0, 10):
        write(sink, batch("t", 0, start, range(start, start + 10)))
    assert make_sink(tmp_path).load([PLACE]) == {PLACE: 20}
    assert caplog.text == ""
    table = DeltaTable(str(tmp_path))
    table.restore(1)
    table.optimize.compact()
    assert make_sink(tmp_path).load([OTHER]) == {OTHER: None}
    assert caplog.text == ""  # the table has no offset of that partition
    later = make_sink(tmp_path)
    assert later.load([PLACE]) == {PLACE: 20}
    assert "was restored to an earlier version" in caplog.text
    assert held(tmp_path) == list(range(10))
    again = make_sink(tmp_path, app="again")
    assert again.load([PLACE]) == {PLACE: None}
    assert write(again, batch("t", 0, 10, range(10, 20))) == set()
    assert held(tmp_path) == list(range(20))
    caplog.clear()
    assert make_sink(tmp_path, app="again").load([PLACE]) == {PLACE: 20}
    assert caplog.text == ""
