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


def looks_from_now_on(monkeypatch: pytest.MonkeyPatch) -> list[DeltaSink]:
    """Return a list that grows by each sink that reads the table."""
    looks, newest = list[DeltaSink](), DeltaSink._newest

    def looked(self: DeltaSink) -> DeltaTable | None:
        looks.append(self)
        return newest(self)

    monkeypatch.setattr(DeltaSink, "_newest", looked)
    return looks


def held(folder: Path) -> list[int]:
    return numbers(DeltaTable(str(folder)).to_pyarrow_table(columns=["value"]))


def test_data_and_offsets_are_one_commit(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    assert sink.load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    assert write(sink, joined(batch("t", 0, 5, range(3)), batch("t", 1, 0, range(3, 7)))) == set()
    assert make_sink(tmp_path).load([PLACE, OTHER]) == {PLACE: 8, OTHER: 4}
    assert DeltaTable(str(tmp_path)).version() == 1  # the table itself is 0
    assert held(tmp_path) == list(range(7))


def test_what_does_not_begin_where_the_table_ends_is_refused(tmp_path: Path) -> None:
    sink, other = make_sink(tmp_path), make_sink(tmp_path)
    write(sink, batch("t", 0, 0, range(10)))
    assert write(other, batch("t", 0, 0, range(10))) == {PLACE}
    both = joined(batch("t", 0, 5, range(5, 15)), batch("t", 1, 0, range(10, 12)))
    assert write(other, both) == {PLACE}  # and the other part is there
    assert held(tmp_path) == list(range(12))


def test_a_commit_in_between_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that pauses between its read and its write commits on the snapshot that it read."""
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


def test_a_commit_of_another_partition_in_between_does_not_matter(
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


def test_who_writes_alone_need_not_look_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit tells what the next one will find: to read the log again takes as long as it."""
    sink = make_sink(tmp_path)
    looks = looks_from_now_on(monkeypatch)
    for offset in range(5):
        assert (
            write(
                sink, joined(batch("t", 0, offset, [offset]), batch("t", 1, offset, [5 + offset]))
            )
            == set()
        )
    assert len(looks) == 1
    assert write(sink, batch("t", 0, 3, [99])) == {PLACE}
    assert len(looks) == 2  # nothing is refused because of a cached value
    assert held(tmp_path) == list(range(10))


def test_what_is_known_of_one_topic_stays_known_while_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make_sink(tmp_path)
    looks = looks_from_now_on(monkeypatch)
    for offset in range(5):
        for number, topic in enumerate("tuv"):
            what = batch(topic, 0, offset, [offset], topic_id=UUID(int=number))
            assert write(sink, what) == set()
    assert len(looks) == 3  # one for each, the first time


def test_what_others_wrote_before_our_own_commit_is_looked_up(tmp_path: Path) -> None:
    """The sink's snapshot contains it then, so delta-rs does not report a conflict."""
    sink, other = make_sink(tmp_path), make_sink(tmp_path)
    write(sink, joined(batch("t", 0, 0, [0]), batch("t", 1, 0, [1])))
    write(other, batch("t", 0, 1, [2]))
    assert write(sink, batch("t", 1, 1, [3])) == set()
    assert write(sink, batch("t", 0, 1, [2])) == {PLACE}
    assert held(tmp_path) == [0, 1, 2, 3]


def test_a_commit_that_failed_and_is_there_is_not_made_again(
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


def test_a_new_table_is_made_as_it_is_to_be_written(tmp_path: Path) -> None:
    properties = {"delta.logRetentionDuration": "interval 2 days"}
    sink = make_sink(tmp_path, partition_by=["topic"], configuration=properties, name="orders")
    assert write(sink, batch("t", 0, 0, range(3))) == set()
    assert write(sink, batch("t", 0, 3, range(3, 5))) == set()
    made = DeltaTable(str(tmp_path)).metadata()
    assert made.partition_columns == ["topic"]
    assert made.configuration == properties
    assert made.name == "orders"
    assert held(tmp_path) == list(range(5))


def test_a_table_has_offsets_by_the_name_of_who_writes(tmp_path: Path) -> None:
    write(make_sink(tmp_path), batch("t", 0, 0, range(3)))
    assert make_sink(tmp_path, app="another").load([PLACE]) == {PLACE: None}


def test_a_table_that_was_restored_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert caplog.text == ""  # nothing was to be known of that
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
