"""Import folders of a shipped archive, which no other user can write to."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from asyncconsumer.spark.deploy import bootstrap

pytestmark = pytest.mark.fast

NOBODY = 65534
CODE = "package/asyncconsumer/__init__.py"
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); import asyncconsumer as a; print(a.VERSION)"

# the standard library is imported first, because the other user may not be able to read it
BECOME = """
import atexit, hashlib, importlib, os, pathlib, shutil, stat, sys, sysconfig, tempfile, typing
import zipfile, zipimport, zlib
sysconfig.get_config_var("SOABI"), "".encode("cp437")
os.setgroups([]), os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[2]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that every user can enter, unlike `tmp_path`."""
    shared = Path(tempfile.mkdtemp(prefix="shipped-")).resolve()
    shared.chmod(0o755)
    yield shared
    shutil.rmtree(shared)


@pytest.fixture(autouse=True)
def private_copies(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"  # changed after `folder`, which is in the usual place
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def archive_of(folder: Path, version: str, also: Mapping[str, str] = {}) -> Path:
    """Write an archive whose package has a version."""
    path = folder / "shipped.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(str(bootstrap.__file__), "asyncconsumer/__init__.py")
        archive.writestr(bootstrap.MADE_BY, bootstrap.interpreter())
        archive.writestr(CODE, f"VERSION = {version!r}")
        for name, text in also.items():
            archive.writestr(name, text)
    return path


def shared_folder(archive: Path) -> Path:
    return archive.with_name(f"asyncconsumer-{hashlib.sha256(archive.read_bytes()).hexdigest()}")


def plant(folder: Path) -> None:
    """Write a module of another user."""
    place = folder / CODE
    place.parent.mkdir(parents=True)
    place.write_text("VERSION = 'planted'")
    (folder / bootstrap.MADE_BY).write_text(bootstrap.interpreter())


def version_in(paths: list[Path]) -> str:
    result: dict[str, str] = {}
    exec((paths[0] / "asyncconsumer/__init__.py").read_text(), result)
    return result["VERSION"]


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the owner of `path`, or pretend that this process has another user id."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, -1)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


def test_processes_share_a_folder_named_by_the_hash(folder: Path) -> None:
    archive = archive_of(folder, "1")
    first = bootstrap.unpack(archive)
    assert first == bootstrap.unpack(archive)
    assert first[0].parent == shared_folder(archive)
    assert {path.name for path in folder.iterdir()} == {"shipped.zip", shared_folder(archive).name}


def test_a_replaced_archive_runs_the_new_code(folder: Path) -> None:
    for version in ("1", "2", "1"):
        archive = archive_of(folder, version)
        command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(archive)]
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
        assert completed.stdout.strip() == version


@pytest.mark.parametrize("name", ["shipped.zip.unpacked", "by hash"])
def test_a_folder_of_another_user_is_not_imported_from(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, private_copies: Path
) -> None:
    archive = archive_of(folder, "1")
    planted = shared_folder(archive) if name == "by hash" else folder / name
    plant(planted)
    give_away(planted, monkeypatch)
    results = bootstrap.unpack(archive)
    assert version_in(results) == "1"
    assert not results[0].is_relative_to(planted)
    if name == "by hash":
        assert results[0].is_relative_to(private_copies.resolve())


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_imported_from(mode: int, folder: Path) -> None:
    archive = archive_of(folder, "1")
    plant(shared_folder(archive))
    shared_folder(archive).chmod(mode)
    assert version_in(bootstrap.unpack(archive)) == "1"


@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_that_others_can_replace_is_not_imported_from(
    mode: int, above: int, folder: Path, private_copies: Path
) -> None:
    """Check writable parents, because their users can rename the folder."""
    parents = [folder / "a", folder / "a/b", folder / "a/b/c"]
    parents[-1].mkdir(parents=True)
    archive = archive_of(parents[-1], "1")
    plant(shared_folder(archive))
    parents[above].chmod(mode)
    results = bootstrap.unpack(archive)
    assert version_in(results) == "1"
    assert results[0].is_relative_to(private_copies.resolve())
    assert [path.name for path in parents[-1].iterdir() if path.name.startswith(".")] == []


def test_a_folder_below_one_of_another_user_is_not_imported_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch, private_copies: Path
) -> None:
    archive = archive_of(folder, "1")
    plant(shared_folder(archive))
    give_away(folder, monkeypatch)
    results = bootstrap.unpack(archive)
    assert version_in(results) == "1"
    assert results[0].is_relative_to(private_copies.resolve())


def test_a_symbolic_link_is_not_followed(folder: Path) -> None:
    archive = archive_of(folder, "1")
    plant(folder / "elsewhere")
    shared_folder(archive).symlink_to(folder / "elsewhere")
    assert version_in(bootstrap.unpack(archive)) == "1"
    shared_folder(archive).unlink()
    shared_folder(archive).write_text("")  # a file does not prevent the start
    assert version_in(bootstrap.unpack(archive)) == "1"


def test_a_folder_within_a_sticky_one_is_shared(folder: Path) -> None:
    folder.chmod(0o1777)
    archive = archive_of(folder, "1")
    assert bootstrap.unpack(archive) == bootstrap.unpack(archive)
    assert bootstrap.unpack(archive)[0].parent == shared_folder(archive)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_other_users_can_read_and_not_write_with_any_umask(umask: int, folder: Path) -> None:
    """Check also the byte code that Python adds at an import."""
    archive = archive_of(folder, "1", {"package/asyncconsumer/deep/er/one.py": "", "x/y.txt": ""})
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(archive)]
    subprocess.run(command, check=True, umask=umask, stdout=subprocess.DEVNULL)
    below = [shared_folder(archive), *shared_folder(archive).rglob("*")]
    cached = [path for path in below if path.suffix == ".pyc"]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in below if path not in cached}
    wrong = {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (0o755 if path.is_dir() else 0o644)
    }
    assert wrong == {}
    assert cached
    assert not any(path.stat().st_mode & 0o022 for path in cached)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("first", [0, NOBODY, NOBODY - 1])
def test_a_second_user_can_import_a_shared_folder(first: int, folder: Path) -> None:
    folder.chmod(0o1777)
    archive = archive_of(folder, "1")
    archive.chmod(0o644)
    for user in (first, NOBODY):
        command = [sys.executable, "-I", "-S", "-c", BECOME + PROGRAM, str(archive), str(user)]
        completed = subprocess.run(command, capture_output=True, text=True)
        assert completed.stdout.strip() == "1", completed.stderr
    assert shared_folder(archive).stat().st_uid == first
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_entries_outside_of_the_folder_are_not_unpacked(folder: Path) -> None:
    inside = folder / "in" / "side"
    inside.mkdir(parents=True)
    environment = {"../up.txt": "", "../../upper.txt": "", "/tmp/asyncconsumer-absolute.txt": ""}
    archive = archive_of(inside, "1", {**environment, "package/../../side.txt": ""})
    bootstrap.unpack(archive)
    assert {path.name for path in inside.iterdir()} == {"shipped.zip", shared_folder(archive).name}
    assert [path.name for path in folder.iterdir()] == ["in"]
    assert [path.name for path in inside.parent.iterdir()] == ["side"]
    assert not Path("/tmp/asyncconsumer-absolute.txt").exists()


def test_concurrent_processes_use_the_folder_of_the_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, rename = archive_of(folder, "1"), Path.rename

    def late(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        assert version_in(bootstrap.unpack(archive)) == "1"  # another process meanwhile
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    assert bootstrap.unpack(archive)[0].parent == shared_folder(archive)
    assert {path.name for path in folder.iterdir()} == {"shipped.zip", shared_folder(archive).name}


def test_a_failed_unpacking_leaves_only_the_archive(
    folder: Path, monkeypatch: pytest.MonkeyPatch, private_copies: Path
) -> None:
    archive, extract = archive_of(folder, "1"), zipfile.ZipFile.extractall

    def full(self: zipfile.ZipFile, path: Path) -> None:
        extract(self, path)
        if path.parent == folder:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    results = bootstrap.unpack(archive)
    assert results[0].is_relative_to(private_copies.resolve())
    assert list(folder.iterdir()) == [archive]
