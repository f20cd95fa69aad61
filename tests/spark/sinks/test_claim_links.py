"""Landing folders of earlier versions, whose claims are symbolic links."""

from pathlib import Path
from uuid import UUID

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.errors import ConfigError, SinkOffsetConflict
from asyncconsumer.spark.sinks import claims
from asyncconsumer.spark.sinks.claim_links import Link, last_link
from asyncconsumer.spark.sinks.landing import LandingFolder
from tests.support.feeder_tables import batch, landed, numbers

pytestmark = pytest.mark.fast

PLACE = TopicPartition("t", 0)
ONE = UUID(int=1 << 100)


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """Return the folder of a partition without claims."""
    folder = tmp_path / "_offsets" / "t-0"
    folder.mkdir(parents=True)
    (tmp_path / "_pending").mkdir()
    return folder


def claim(links: Path, start: int, end: int, topic_id: UUID | None = None) -> str:
    """Add a claim as earlier versions did."""
    token = f"{start:032x}"
    suffix = "" if topic_id is None else f".{topic_id.hex}"
    (links / f"{start:020d}").symlink_to(f"{end:020d}.{token}{suffix}")
    return token


def opened(folder: Path) -> LandingFolder:
    sink = LandingFolder(folder)
    sink.open()
    return sink


def test_the_last_claim_is_the_offset(links: Path, tmp_path: Path) -> None:
    (links / "first").symlink_to(f"{0:020d}")
    for start in range(0, 30, 10):
        claim(links, start, start + 10, ONE)
    sink = opened(tmp_path)
    assert sink.load([PLACE]) == {PLACE: 30}
    other = batch("t", 0, 30, range(5), topic_id=UUID(int=2))
    prepared = sink.prepare(other)
    with pytest.raises(SinkOffsetConflict):
        sink.publish(other, prepared)
    what = batch("t", 0, 30, range(5), topic_id=ONE)
    assert set(sink.publish(what, sink.prepare(what))) == set()
    assert opened(tmp_path).load([PLACE]) == {PLACE: 35}


def test_a_claimed_file_that_was_not_moved_is_moved(links: Path, tmp_path: Path) -> None:
    other = opened(tmp_path / "other")
    (tmp_path / "other" / "file").mkdir()
    part = batch("t", 0, 0, range(10)).parts[PLACE]
    other._write(str(tmp_path / "_pending" / claim(links, 0, 10)), part)
    assert opened(tmp_path).load([PLACE]) == {PLACE: 10}
    assert numbers(landed(tmp_path)) == list(range(10))


@pytest.mark.parametrize("claimed", [0, 1, 3])
@pytest.mark.parametrize("agreed", [False, True])
def test_earlier_versions_cannot_claim_any_more(
    claimed: int, agreed: bool, links: Path, tmp_path: Path
) -> None:
    if agreed:
        (links / "first").symlink_to(f"{0:020d}")
    for start in range(claimed):
        claim(links, start, start + 1)
    assert opened(tmp_path).load([PLACE]) == {PLACE: claimed or None}
    if agreed or claimed:
        with pytest.raises(FileExistsError):
            claim(links, claimed, claimed + 1)
    else:  # an earlier version would first write the start of the partition
        with pytest.raises(ValueError, match="closed"):
            int(str((links / "first").readlink()))
    assert opened(tmp_path).load([PLACE]) == {PLACE: claimed or None}


def test_a_concurrent_claim_of_an_earlier_version_is_detected(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check an earlier version that still runs, with another writer of this version."""
    claim(links, 0, 10)
    sink, real = opened(tmp_path), Path.symlink_to

    def after_another(path: Path, target: str) -> None:
        monkeypatch.setattr(Path, "symlink_to", real)
        claim(links, 10, 20)
        assert opened(tmp_path).load([PLACE]) == {PLACE: 20}
        real(path, target)

    monkeypatch.setattr(Path, "symlink_to", after_another)
    assert sink.load([PLACE]) == {PLACE: 20}
    assert opened(tmp_path).load([PLACE]) == {PLACE: 20}


def test_links_are_read_only_once(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(links, 0, 10)
    sink = opened(tmp_path)
    sink.load([PLACE])
    what = batch("t", 0, 10, range(5))
    sink.publish(what, sink.prepare(what))
    reads = list[Path]()

    def noted(folder: Path) -> Link | None:
        reads.append(folder)
        return last_link(folder)

    monkeypatch.setattr(claims, "last_link", noted)
    assert opened(tmp_path).load([PLACE]) == {PLACE: 15}
    assert reads == []


def test_an_invalid_claim_is_reported(links: Path, tmp_path: Path) -> None:
    (links / f"{0:020d}").symlink_to("elsewhere")
    with pytest.raises(ConfigError, match="not a claim"):
        opened(tmp_path).load([PLACE])
