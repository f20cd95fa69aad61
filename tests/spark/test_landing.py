"""The landing folder: what makes a file count, and what becomes of those that do not."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark import landing
from asyncconsumer.spark.batches import Batch
from asyncconsumer.spark.landing import LandingFolder
from tests.spark.lake import batch, in_a_row, joined, landed, numbers, ranges

pytestmark = pytest.mark.fast

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "landing"


def sink(folder: Path) -> LandingFolder:
    one = LandingFolder(folder)
    one.open()
    return one


def write(one: LandingFolder, what: Batch) -> set[TopicPartition]:
    return set(one.publish(what, one.prepare(what)))


def make_old(path: Path) -> None:
    long_ago = datetime.now(UTC).timestamp() - 48 * 3600
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def claim_in_a_row(claims: Path, starts: range) -> None:
    """As if each record had been a file, and was taken away."""
    for start in starts:
        (claims / f"{start:020d}").symlink_to(f"{start + 1:020d}.{start:032x}")


def test_what_is_written_is_seen_and_remembered(folder: Path) -> None:
    one = sink(folder)
    assert one.load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    what = joined(batch("t", 0, 10, range(5)), batch("t", 1, 0, range(5, 8)))
    assert write(one, what) == set()
    assert numbers(landed(folder)) == list(range(8))
    assert ranges(folder) == {PLACE: [(10, 15)], OTHER: [(0, 3)]}
    assert sink(folder).load([PLACE, OTHER]) == {PLACE: 15, OTHER: 3}


def test_files_may_be_taken_away_and_are_still_remembered(folder: Path) -> None:
    one = sink(folder)
    one.load([PLACE])
    write(one, batch("t", 0, 0, range(5)))
    for path in folder.glob("*.parquet"):
        path.unlink()
    assert sink(folder).load([PLACE]) == {PLACE: 5}


def test_of_two_writers_one_wins_whatever_the_other_has_prepared(folder: Path) -> None:
    one, zombie = sink(folder), sink(folder)
    for each in (one, zombie):
        each.load([PLACE])
    assert write(one, batch("t", 0, 0, range(10))) == set()
    late, later = batch("t", 0, 10, range(10, 14)), batch("t", 0, 14, range(14, 20))
    zombie.load([PLACE])
    prepared, further = zombie.prepare(late), zombie.prepare(later)
    assert write(one, batch("t", 0, 10, range(10, 20))) == set()
    assert set(zombie.publish(late, prepared)) == {PLACE}
    assert set(zombie.publish(later, further)) == {PLACE}  # also what would be no overlap by name
    assert numbers(landed(folder)) == list(range(20))
    assert list((folder / "_pending").iterdir()) == []


def test_two_writers_agree_on_where_a_partition_begins(folder: Path) -> None:
    one, other = sink(folder), sink(folder)
    for each in (one, other):
        each.load([PLACE])
    assert write(one, batch("t", 0, 0, range(10))) == set()
    assert write(other, batch("t", 0, 5, range(5, 10))) == {PLACE}
    assert write(other, batch("t", 0, 10, range(10, 12))) == {PLACE}  # it was told of no such end
    assert other.load([PLACE]) == {PLACE: 10}
    assert write(other, batch("t", 0, 10, range(10, 12))) == set()
    assert numbers(landed(folder)) == list(range(12))


def test_a_writer_that_died_after_its_claim_is_finished_by_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, what = sink(folder), batch("t", 0, 0, range(10))
    one.load([PLACE])
    with monkeypatch.context() as patch:
        patch.setattr(LandingFolder, "_show", lambda *_: os.abort)  # it gets no further
        one.publish(what, one.prepare(what))
    assert not list(folder.glob("*.parquet"))
    assert sink(folder).load([PLACE]) == {PLACE: 10}
    assert numbers(landed(folder)) == list(range(10))
    assert sink(folder).load([PLACE]) == {PLACE: 10}  # and harmless when repeated


def test_a_writer_that_died_before_its_claim_has_written_nothing(folder: Path) -> None:
    one = sink(folder)
    one.prepare(batch("t", 0, 0, range(10)))
    (pending,) = (folder / "_pending").iterdir()
    assert sink(folder).load([PLACE]) == {PLACE: None}
    assert pending.exists()  # it may live, and claim yet
    make_old(pending)
    sink(folder)
    assert not pending.exists()


def test_what_was_claimed_is_never_swept_out_however_old(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, what = sink(folder), batch("t", 0, 0, range(10))
    one.load([PLACE])
    with monkeypatch.context() as patch:
        patch.setattr(LandingFolder, "_show", lambda *_: None)
        one.publish(what, one.prepare(what))
    one.prepare(batch("t", 1, 0, range(3)))  # and this one was not claimed
    for pending in (folder / "_pending").iterdir():
        make_old(pending)
    other = sink(folder)
    assert len(list((folder / "_pending").iterdir())) == 1
    assert other.load([PLACE]) == {PLACE: 10}
    assert numbers(landed(folder)) == list(range(10))


def test_nothing_is_claimed_for_a_file_that_was_swept_out(folder: Path) -> None:
    sleeper, what = sink(folder), batch("t", 0, 0, range(10))
    sleeper.load([PLACE])
    prepared = sleeper.prepare(what)
    make_old(folder / "_pending" / prepared[PLACE])
    sink(folder)
    assert set(sleeper.publish(what, prepared)) == {PLACE}
    assert sleeper.load([PLACE]) == {PLACE: None}
    assert write(sleeper, what) == set()
    assert numbers(landed(folder)) == list(range(10))


def test_a_write_that_failed_half_way_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sink(folder)
    one.load([PLACE, OTHER])
    what = joined(batch("t", 0, 0, range(5)), batch("t", 1, 0, range(5, 8)))
    prepared = one.prepare(what)
    rename, failed = Path.rename, list[Path]()

    def full(path: Path, target: Path) -> Path:
        if "t-1-" in target.name and not failed:
            failed.append(path)
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space"):
        one.publish(what, prepared)
    assert set(one.publish(what, prepared)) == set()
    assert numbers(landed(folder)) == list(range(8))


def test_old_claims_go_but_never_the_last(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncconsumer.spark.landing._CLAIMS_BETWEEN_LOOKS", 3)
    one = sink(folder)
    one.load([PLACE, OTHER])
    both = [folder / "_offsets" / name for name in ("t-0", "t-1")]
    for start in range(3):
        write(one, joined(batch("t", 0, start, [start]), batch("t", 1, start, [start])))
        for path in (path for claims in both for path in claims.iterdir()):
            make_old(path)
    for claims in both:
        assert [path.name for path in sorted(claims.iterdir())] == [f"{2:020d}", "first"]
    assert sink(folder).load([PLACE, OTHER]) == {PLACE: 3, OTHER: 3}
    assert in_a_row(ranges(folder)[PLACE])


def test_old_claims_go_also_where_nobody_runs_for_long(folder: Path) -> None:
    for start in range(4):
        one = sink(folder)
        one.load([PLACE])
        write(one, batch("t", 0, start, [start]))
        for path in (claims := folder / "_offsets" / "t-0").iterdir():
            make_old(path)
    assert sink(folder).load([PLACE]) == {PLACE: 4}
    assert [path.name for path in sorted(claims.iterdir())] == [f"{3:020d}", "first"]


def test_claims_that_stay_are_not_looked_at_one_by_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group waits for this, and a day may have 69,000 claims of each partition."""
    one, looked = sink(folder), list[Path]()
    one.load([PLACE])
    claims = folder / "_offsets" / "t-0"

    def noted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            if isinstance(path, str | Path) and Path(path).parent == claims:
                looked.append(Path(path))
            return real(path, *args, **options)

        return call

    claim_in_a_row(claims, range(200))
    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, noted(getattr(os, name)))
    assert one.load([PLACE]) == {PLACE: 200}
    assert [path.name for path in looked] == [f"{0:020d}"]


def test_of_very_many_old_claims_only_some_go_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.landing._CLAIMS_BETWEEN_LOOKS", 3)
    one = sink(folder)
    one.load([PLACE])
    claim_in_a_row(claims := folder / "_offsets" / "t-0", range(15))
    for path in claims.iterdir():
        make_old(path)
    left = list[list[str]]()
    for _ in range(4):
        assert one.load([PLACE]) == {PLACE: 15}
        left.append(sorted(path.name for path in claims.iterdir()))
    assert left == [[f"{n:020d}" for n in range(first, 15)] for first in (6, 12, 14, 14)]


def test_what_is_no_claim_keeps_no_old_one(folder: Path) -> None:
    """What sorts before all claims is in nobody's way, be it young."""
    one = sink(folder)
    one.load([PLACE])
    claim_in_a_row(claims := folder / "_offsets" / "t-0", range(5))
    for path in claims.iterdir():
        make_old(path)
    claim_in_a_row(claims, range(5, 8))
    (claims / ".DS_Store").write_text("")
    assert one.load([PLACE]) == {PLACE: 8}
    stay = [".DS_Store", *(f"{n:020d}" for n in range(5, 8))]
    assert sorted(path.name for path in claims.iterdir()) == stay


@pytest.mark.parametrize("length", [197, 198, 249])
def test_a_topic_may_have_the_longest_of_names(folder: Path, length: int) -> None:
    """Those of two that begin alike are apart all the same."""
    topics = ["t" * length, "t" * (length - 1) + "u"]
    places = [TopicPartition(topic, 12_345) for topic in topics]
    one = sink(folder)
    one.load(places)
    for start in range(2):
        what = joined(*(batch(topic, 12_345, start, [start]) for topic in topics))
        assert write(one, what) == set()
    assert sink(folder).load(places) == dict.fromkeys(places, 2)
    assert numbers(landed(folder)) == [0, 0, 1, 1]


def test_many_partitions_are_made_durable_together(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sync after another name, and so on, has the disk write each time; all names first."""
    did = list[str]()
    real = {name: getattr(landing, name) for name in ("_sync", "_linked")}

    def noted(name: str) -> Callable[..., Any]:
        def call(path: Path, *others: str) -> Any:
            did.append(f"{name} {path.relative_to(folder).parts[:1]}")
            return real[name](path, *others)

        return call

    one = sink(folder)
    for name in real:
        monkeypatch.setattr(landing, name, noted(name))
    places = [TopicPartition("t", number) for number in range(20)]
    one.load(places)
    assert len(did) == 1
    what = joined(*(batch("t", number, 0, [number]) for number in range(20)))
    prepared = one.prepare(what)
    did.clear()
    one.publish(what, prepared)
    *links, last = [place for place, name in enumerate(did) if name.startswith("_linked")]
    syncs = [place for place, name in enumerate(did) if name.startswith("_sync")]
    assert (len(links), len(syncs)) == (39, 21)  # a claim and a beginning each; and the folder
    assert min(syncs) > last


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="name a folder"):
        LandingFolder(tmp_path / "file").open()


def test_what_is_no_claim_is_told_of(folder: Path) -> None:
    one = sink(folder)
    one.load([PLACE])
    (folder / "_offsets" / "t-0" / "notes").symlink_to("elsewhere")
    with pytest.raises(ConfigError, match="not a claim"):
        one.load([PLACE])
