"""The landing folder: what makes a file count, and what becomes of those that do not."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.sinks.landing import LandingFolder
from tests.support.feeder_tables import batch, joined, landed, numbers, ranges

pytestmark = pytest.mark.fast

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "landing"


def make_sink(folder: Path) -> LandingFolder:
    sink = LandingFolder(folder)
    sink.open()
    return sink


def write(sink: LandingFolder, what: FeedBatch) -> set[TopicPartition]:
    return set(sink.publish(what, sink.prepare(what)))


def make_old(path: Path) -> None:
    long_ago = datetime.now(UTC).timestamp() - 48 * 3600
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def test_what_is_written_is_seen_and_remembered(folder: Path) -> None:
    sink = make_sink(folder)
    assert sink.load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    what = joined(batch("t", 0, 10, range(5)), batch("t", 1, 0, range(5, 8)))
    assert write(sink, what) == set()
    assert numbers(landed(folder)) == list(range(8))
    assert ranges(folder) == {PLACE: [(10, 15)], OTHER: [(0, 3)]}
    assert make_sink(folder).load([PLACE, OTHER]) == {PLACE: 15, OTHER: 3}


def test_files_may_be_taken_away_and_are_still_remembered(folder: Path) -> None:
    sink = make_sink(folder)
    sink.load([PLACE])
    write(sink, batch("t", 0, 0, range(5)))
    for path in folder.glob("*.parquet"):
        path.unlink()
    assert make_sink(folder).load([PLACE]) == {PLACE: 5}


def test_of_two_writers_one_wins_whatever_the_other_has_prepared(folder: Path) -> None:
    sink, zombie = make_sink(folder), make_sink(folder)
    for each in (sink, zombie):
        each.load([PLACE])
    assert write(sink, batch("t", 0, 0, range(10))) == set()
    late, later = batch("t", 0, 10, range(10, 14)), batch("t", 0, 14, range(14, 20))
    zombie.load([PLACE])
    prepared, further = zombie.prepare(late), zombie.prepare(later)
    assert write(sink, batch("t", 0, 10, range(10, 20))) == set()
    assert set(zombie.publish(late, prepared)) == {PLACE}
    assert set(zombie.publish(later, further)) == {PLACE}  # also what would be no overlap by name
    assert numbers(landed(folder)) == list(range(20))
    assert list((folder / "_pending").iterdir()) == []


def test_two_writers_agree_on_where_a_partition_begins(folder: Path) -> None:
    sink, other = make_sink(folder), make_sink(folder)
    for each in (sink, other):
        each.load([PLACE])
    assert write(sink, batch("t", 0, 0, range(10))) == set()
    assert write(other, batch("t", 0, 5, range(5, 10))) == {PLACE}
    assert write(other, batch("t", 0, 10, range(10, 12))) == {PLACE}  # no such end was reported
    assert other.load([PLACE]) == {PLACE: 10}
    assert write(other, batch("t", 0, 10, range(10, 12))) == set()
    assert numbers(landed(folder)) == list(range(12))


def test_a_writer_that_died_after_its_claim_is_finished_by_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, what = make_sink(folder), batch("t", 0, 0, range(10))
    sink.load([PLACE])
    with monkeypatch.context() as patch:
        patch.setattr(LandingFolder, "_make_visible", lambda *_: os.abort)  # it gets no further
        sink.publish(what, sink.prepare(what))
    assert not list(folder.glob("*.parquet"))
    assert make_sink(folder).load([PLACE]) == {PLACE: 10}
    assert numbers(landed(folder)) == list(range(10))
    assert make_sink(folder).load([PLACE]) == {PLACE: 10}  # and harmless when repeated


def test_a_write_that_failed_half_way_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make_sink(folder)
    sink.load([PLACE, OTHER])
    what = joined(batch("t", 0, 0, range(5)), batch("t", 1, 0, range(5, 8)))
    prepared = sink.prepare(what)
    rename, failed = Path.rename, list[Path]()

    def full(path: Path, target: Path) -> Path:
        if "t-1-" in target.name and not failed:
            failed.append(path)
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space"):
        sink.publish(what, prepared)
    assert set(sink.publish(what, prepared)) == set()
    assert numbers(landed(folder)) == list(range(8))


@pytest.mark.parametrize("length", [197, 198, 249])
def test_a_topic_may_have_the_longest_of_names(folder: Path, length: int) -> None:
    """The folders of two topics with a common beginning differ."""
    topics = ["t" * length, "t" * (length - 1) + "u"]
    places = [TopicPartition(topic, 12_345) for topic in topics]
    sink = make_sink(folder)
    sink.load(places)
    for start in range(2):
        what = joined(*(batch(topic, 12_345, start, [start]) for topic in topics))
        assert write(sink, what) == set()
    assert make_sink(folder).load(places) == dict.fromkeys(places, 2)
    assert numbers(landed(folder)) == [0, 0, 1, 1]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="LandingFolder needs a folder"):
        LandingFolder(tmp_path / "file").open()


def pending(folder: Path) -> list[Path]:
    return sorted((folder / "_pending").iterdir())


def heads(folder: Path) -> list[str]:
    return [path.name for path in (folder / "_claims" / "t-0").iterdir()]


def test_what_can_be_claimed_yet_stays_and_what_cannot_goes(folder: Path) -> None:
    """However old the files are, or seem to be: no clock says whether a writer lives."""
    sink, other = make_sink(folder), make_sink(folder)
    for each in (sink, other):
        each.load([PLACE])
    first, late = batch("t", 0, 0, range(10)), batch("t", 0, 0, range(5))
    prepared = other.prepare(late)
    for path in pending(folder):
        make_old(path)
    assert make_sink(folder).load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    assert len(pending(folder)) == 1
    assert write(sink, first) == set()
    make_sink(folder).load([OTHER])
    assert len(pending(folder)) == 1  # nobody asked about that partition
    make_sink(folder).load([PLACE])
    assert pending(folder) == []
    assert set(other.publish(late, prepared)) == {PLACE}
    assert numbers(landed(folder)) == list(range(10))


def test_what_was_claimed_is_never_swept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, what = make_sink(folder), batch("t", 0, 0, range(10))
    sink.load([PLACE])
    with monkeypatch.context() as patch:
        patch.setattr(LandingFolder, "_make_visible", lambda *_: None)
        sink.publish(what, sink.prepare(what))
    for path in pending(folder):
        make_old(path)
    other = make_sink(folder)
    assert len(pending(folder)) == 1
    assert other.load([PLACE]) == {PLACE: 10}
    assert numbers(landed(folder)) == list(range(10))


def test_nothing_is_claimed_without_a_file(folder: Path) -> None:
    sink, what = make_sink(folder), batch("t", 0, 0, range(10))
    sink.load([PLACE])
    prepared = sink.prepare(what)
    for path in pending(folder):
        path.unlink()
    assert set(sink.publish(what, prepared)) == {PLACE}
    assert sink.load([PLACE]) == {PLACE: None}
    assert write(sink, what) == set()
    assert numbers(landed(folder)) == list(range(10))


@pytest.mark.parametrize("claims_meanwhile", [1, 2, 50])
def test_a_writer_that_slept_is_refused_however_long_it_was(
    folder: Path, claims_meanwhile: int
) -> None:
    sleeper, what = make_sink(folder), batch("t", 0, 0, range(10))
    sleeper.load([PLACE])
    prepared = sleeper.prepare(what)
    for start in range(0, 10 * claims_meanwhile, 10):
        sink = make_sink(folder)
        sink.load([PLACE])
        write(sink, batch("t", 0, start, range(start, start + 10)))
        for path in folder.rglob("*"):
            make_old(path)
    make_sink(folder).load([PLACE])
    assert set(sleeper.publish(what, prepared)) == {PLACE}
    assert numbers(landed(folder)) == list(range(10 * claims_meanwhile))
    assert sleeper.load([PLACE]) == {PLACE: 10 * claims_meanwhile}


def test_a_writer_that_loaded_nothing_claims_nothing(folder: Path) -> None:
    """The writer cannot know whether the previous file is visible."""
    assert write(make_sink(folder), batch("t", 0, 0, range(3))) == {PLACE}


def test_one_entry_is_all_that_a_partition_needs(folder: Path) -> None:
    sink = make_sink(folder)
    sink.load([PLACE])
    assert heads(folder) == ["nothing"]
    for start in range(20):
        write(sink, batch("t", 0, start, [start]))
        assert len(heads(folder)) == 1
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == [
        "_claims",
        "_pending",
    ]


def test_a_claim_whose_answer_was_lost_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, what, rename = make_sink(folder), batch("t", 0, 0, range(5)), Path.rename
    sink.load([PLACE])
    prepared = sink.prepare(what)

    def lost(path: Path, target: Path) -> Path:
        rename(path, target)
        monkeypatch.setattr(Path, "rename", rename)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "rename", lost)
    with pytest.raises(OSError, match="Input/output"):
        sink.publish(what, prepared)
    assert set(sink.publish(what, prepared)) == set()
    assert write(sink, batch("t", 0, 5, [5])) == set()
    assert numbers(landed(folder)) == list(range(6))


def test_many_partitions_are_made_durable_together(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sync after another name, and so on, has the disk write each time; all names first."""
    did = list[str]()

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            did.append(name if name == "sync" else f"rename {Path(values[1]).parent.name}")
            return real(*values)

        return call

    sink = make_sink(folder)
    monkeypatch.setattr(os, "fsync", noted("sync", os.fsync))
    monkeypatch.setattr(os, "rename", noted("rename", os.rename))
    places = [TopicPartition("t", number) for number in range(20)]
    sink.load(places)
    assert did.count("sync") == 1
    what = joined(*(batch("t", number, 0, [number]) for number in range(20)))
    prepared = sink.prepare(what)
    did.clear()
    sink.publish(what, prepared)
    claimed = [f"rename t-{number}" for number in range(20)]
    assert did == [*claimed, *["sync"] * 20, *["rename landing"] * 20, "sync"]


def test_what_is_no_claim_is_reported(folder: Path) -> None:
    sink = make_sink(folder)
    sink.load([PLACE])
    (folder / "_claims" / "t-0" / ".DS_Store").write_text("")  # what machines leave is not
    assert sink.load([PLACE]) == {PLACE: None}
    (folder / "_claims" / "t-0" / "notes").write_text("")
    with pytest.raises(ConfigError, match="not a claim"):
        sink.load([PLACE])


def test_a_folder_that_lost_its_claim_is_reported(folder: Path) -> None:
    sink = make_sink(folder)
    sink.load([PLACE])
    claims = folder / "_claims" / "t-0"
    (claims / "nothing").unlink()
    assert sink.load([PLACE]) == {PLACE: None}  # as if it was never there
    (claims / "nothing").rename(claims / ".hidden")
    with pytest.raises(ConfigError, match="t-0 has no claim"):
        sink.load([PLACE])


@pytest.mark.parametrize("topic", ["../../elsewhere", "..", ".", "", "a/b", "t\0", "t" * 250, "ü"])
def test_no_file_is_made_of_what_is_no_topic(folder: Path, topic: str) -> None:
    sink = make_sink(folder)
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(ConfigError, match="not a legal topic name"):
        sink.load([TopicPartition(topic, 0)])
    with pytest.raises(ConfigError, match="not a legal topic name"):
        sink.prepare(batch(topic, 0, 0, [1]))
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "address",
    [
        "dbfs:/landing",
        "file:///landing",
        "file:/landing",
        "memory://landing",
        "chained+https://host/landing",
        Path("dbfs://bucket/landing"),
    ],
)
def test_an_address_with_another_scheme_is_no_folder(
    address: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"does not know the scheme.*s3, "):
        LandingFolder(address).open()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address", ["hdfs:", "hdfs:/landing", "hdfs://host", "viewfs://x", Path("hdfs://host/landing")]
)
def test_an_incomplete_hadoop_url_is_refused(address: str | Path) -> None:
    with pytest.raises(ConfigError, match="not a URL of a Hadoop file system"):
        LandingFolder(address)


def test_a_hadoop_url_without_a_host_needs_a_default_file_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"hdfs:///landing cannot be opened.*HADOOP_CONF_DIR"):
        LandingFolder("hdfs:///landing")
    properties = {"fs.defaultFS": "hdfs://host:1"}
    assert LandingFolder("hdfs:///landing", storage_options=properties).folder == "hdfs:///landing"


def test_a_local_folder_has_no_storage_options(folder: Path) -> None:
    with pytest.raises(ConfigError, match="`storage_options` of LandingFolder"):
        LandingFolder(folder, storage_options={"region": "eu-1"})


@pytest.mark.parametrize("name", ["landing", "a.b/c:d", "./x", "C:/x", "s3", "/tmp/s3:/x"])
def test_other_names_are_folders(name: str) -> None:
    assert LandingFolder(name).folder == Path(name)
