"""The landing folder: claims, visible files, and files that are not claimed."""

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


def test_written_files_are_visible_and_offsets_are_loaded(folder: Path) -> None:
    sink = make_sink(folder)
    assert sink.load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    what = joined(batch("t", 0, 10, range(5)), batch("t", 1, 0, range(5, 8)))
    assert write(sink, what) == set()
    assert numbers(landed(folder)) == list(range(8))
    assert ranges(folder) == {PLACE: [(10, 15)], OTHER: [(0, 3)]}
    assert make_sink(folder).load([PLACE, OTHER]) == {PLACE: 15, OTHER: 3}


def test_offsets_remain_after_files_were_deleted(folder: Path) -> None:
    sink = make_sink(folder)
    sink.load([PLACE])
    write(sink, batch("t", 0, 0, range(5)))
    for path in folder.glob("*.parquet"):
        path.unlink()
    assert make_sink(folder).load([PLACE]) == {PLACE: 5}


def test_prepared_batches_of_a_writer_with_an_old_claim_are_refused(folder: Path) -> None:
    sink, zombie = make_sink(folder), make_sink(folder)
    for each in (sink, zombie):
        each.load([PLACE])
    assert write(sink, batch("t", 0, 0, range(10))) == set()
    late, later = batch("t", 0, 10, range(10, 14)), batch("t", 0, 14, range(14, 20))
    zombie.load([PLACE])
    prepared, further = zombie.prepare(late), zombie.prepare(later)
    assert write(sink, batch("t", 0, 10, range(10, 20))) == set()
    assert set(zombie.publish(late, prepared)) == {PLACE}
    assert set(zombie.publish(later, further)) == {
        PLACE
    }  # also a batch whose range does not overlap
    assert numbers(landed(folder)) == list(range(20))
    assert list((folder / "_pending").iterdir()) == []


def test_a_second_writer_needs_the_offset_of_the_first(folder: Path) -> None:
    sink, other = make_sink(folder), make_sink(folder)
    for each in (sink, other):
        each.load([PLACE])
    assert write(sink, batch("t", 0, 0, range(10))) == set()
    assert write(other, batch("t", 0, 5, range(5, 10))) == {PLACE}
    assert write(other, batch("t", 0, 10, range(10, 12))) == {
        PLACE
    }  # the writer has not loaded this offset
    assert other.load([PLACE]) == {PLACE: 10}
    assert write(other, batch("t", 0, 10, range(10, 12))) == set()
    assert numbers(landed(folder)) == list(range(12))


def test_the_next_writer_completes_a_claimed_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, what = make_sink(folder), batch("t", 0, 0, range(10))
    sink.load([PLACE])
    with monkeypatch.context() as patch:
        patch.setattr(
            LandingFolder, "_make_visible", lambda *_: os.abort
        )  # the file does not become visible
        sink.publish(what, sink.prepare(what))
    assert not list(folder.glob("*.parquet"))
    assert make_sink(folder).load([PLACE]) == {PLACE: 10}
    assert numbers(landed(folder)) == list(range(10))
    assert make_sink(folder).load([PLACE]) == {PLACE: 10}  # loading again has no effect


def test_a_partly_failed_write_can_be_repeated(
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
def test_topics_with_the_longest_names_are_written(folder: Path, length: int) -> None:
    """Check that the folders of two topics with a long common prefix differ."""
    topics = ["t" * length, "t" * (length - 1) + "u"]
    places = [TopicPartition(topic, 12_345) for topic in topics]
    sink = make_sink(folder)
    sink.load(places)
    for start in range(2):
        what = joined(*(batch(topic, 12_345, start, [start]) for topic in topics))
        assert write(sink, what) == set()
    assert make_sink(folder).load(places) == dict.fromkeys(places, 2)
    assert numbers(landed(folder)) == [0, 0, 1, 1]


def test_a_file_as_landing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="LandingFolder needs a folder"):
        LandingFolder(tmp_path / "file").open()


def pending(folder: Path) -> list[Path]:
    return sorted((folder / "_pending").iterdir())


def heads(folder: Path) -> list[str]:
    return [path.name for path in (folder / "_claims" / "t-0").iterdir()]


def test_only_pending_files_that_cannot_be_claimed_are_deleted(folder: Path) -> None:
    """Check old files, because the age of a file does not show whether its writer is alive."""
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
    assert len(pending(folder)) == 1  # that partition was not loaded
    make_sink(folder).load([PLACE])
    assert pending(folder) == []
    assert set(other.publish(late, prepared)) == {PLACE}
    assert numbers(landed(folder)) == list(range(10))


def test_a_claimed_file_is_not_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_batch_without_its_pending_file_is_not_claimed(folder: Path) -> None:
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
def test_a_frozen_writer_is_refused_after_any_number_of_claims(
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


def test_a_writer_that_has_not_loaded_offsets_is_refused(folder: Path) -> None:
    """Check a writer that cannot know whether the previous file is visible."""
    assert write(make_sink(folder), batch("t", 0, 0, range(3))) == {PLACE}


def test_a_partition_has_one_claim_entry(folder: Path) -> None:
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


def test_a_claim_with_a_lost_response_is_effective(
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


def test_claims_of_many_partitions_are_synced_before_files_are_visible(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that all renames precede the syncs, so that the disk writes them together."""
    calls = list[str]()

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            calls.append(name if name == "sync" else f"rename {Path(values[1]).parent.name}")
            return real(*values)

        return call

    sink = make_sink(folder)
    monkeypatch.setattr(os, "fsync", noted("sync", os.fsync))
    monkeypatch.setattr(os, "rename", noted("rename", os.rename))
    places = [TopicPartition("t", number) for number in range(20)]
    sink.load(places)
    assert calls.count("sync") == 1
    what = joined(*(batch("t", number, 0, [number]) for number in range(20)))
    prepared = sink.prepare(what)
    calls.clear()
    sink.publish(what, prepared)
    claimed = [f"rename t-{number}" for number in range(20)]
    assert calls == [*claimed, *["sync"] * 20, *["rename landing"] * 20, "sync"]


def test_an_invalid_claim_is_reported(folder: Path) -> None:
    sink = make_sink(folder)
    sink.load([PLACE])
    (folder / "_claims" / "t-0" / ".DS_Store").write_text("")  # hidden files are ignored
    assert sink.load([PLACE]) == {PLACE: None}
    (folder / "_claims" / "t-0" / "notes").write_text("")
    with pytest.raises(ConfigError, match="not a claim"):
        sink.load([PLACE])


def test_a_folder_whose_claim_was_removed_is_reported(folder: Path) -> None:
    sink = make_sink(folder)
    sink.load([PLACE])
    claims = folder / "_claims" / "t-0"
    (claims / "nothing").unlink()
    assert sink.load([PLACE]) == {PLACE: None}  # as a new partition
    (claims / "nothing").rename(claims / ".hidden")
    with pytest.raises(ConfigError, match="t-0 has no claim"):
        sink.load([PLACE])


@pytest.mark.parametrize("topic", ["../../elsewhere", "..", ".", "", "a/b", "t\0", "t" * 250, "ü"])
def test_an_invalid_topic_name_creates_no_file(folder: Path, topic: str) -> None:
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
def test_an_address_with_an_unknown_scheme_is_refused(
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
def test_names_without_a_scheme_are_local_folders(name: str) -> None:
    assert LandingFolder(name).folder == Path(name)
