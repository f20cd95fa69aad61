"""The archive that executors are given, on Pythons that have nothing else."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import asyncconsumer
from asyncconsumer import ConfigError
from asyncconsumer.cli.app import app
from asyncconsumer.spark.deploy import bootstrap, packaging
from tests.support.bare_python import bare_python

pytestmark = pytest.mark.fast

PROGRAM = """
import sys
sys.path.insert(1, sys.argv[1])
from asyncconsumer.records import decoding
import asyncconsumer.spark.source.client, aiokafka, cramjam
print(decoding.name, decoding.__file__, aiokafka.__file__, cramjam.__file__)
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packaging.package(tmp_path_factory.mktemp("made") / "ours.zip")


def shared_folder(archive: Path) -> Path:
    return archive.with_name(f"asyncconsumer-{hashlib.sha256(archive.read_bytes()).hexdigest()}")


def imported(archive: Path, python: str | Path, *flags: str) -> subprocess.Popen[str]:
    command = [str(python), *flags, "-c", PROGRAM, str(archive)]
    pipe, folder = subprocess.PIPE, archive.parent
    return subprocess.Popen(command, text=True, cwd=folder, stdout=pipe, stderr=pipe)


def test_a_python_without_any_packages_gets_all_of_it(archive: Path) -> None:
    programs = [imported(archive, sys.executable, "-I", "-S") for _ in range(3)]
    outputs = [program.communicate() for program in programs]  # at once: one unpacks, or several
    root = shared_folder(archive)
    expected = [
        "compiled",
        str(root / "package/asyncconsumer/records/decoding.py"),
        str(root / "dependencies/aiokafka/__init__.py"),
        str(root / "dependencies/cramjam/__init__.py"),
    ]
    assert [out.split() for out, _ in outputs] == [expected] * 3, outputs
    assert {complaints for _, complaints in outputs} == {""}
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, root.name}


def test_made_by_another_python_it_serves_in_pure_python_and_says_so(
    archive: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(archive) as tested, zipfile.ZipFile(other, "w") as theirs:
        for name in tested.namelist():
            inside = tested.read(name)
            if name == bootstrap.MADE_BY:
                inside = b"cpython-399-vax"
            theirs.writestr(name.replace(bootstrap.interpreter(), "cpython-399-vax"), inside)
    out, complaints = imported(other, bare_python(tmp_path / "bare")).communicate()
    name, _, kafka, codecs = out.split()
    assert name == "pure"
    assert "PureDecoderWarning" in complaints
    assert "is for cpython-399-vax, and this Python is cpython-3" in complaints
    assert "/bare/" in kafka  # compiled for that machine, as its own are
    assert "/bare/" in codecs


def test_the_package_zipped_by_hand_serves_in_pure_python_and_says_so(tmp_path: Path) -> None:
    plain = tmp_path / "plain.zip"
    package = Path(str(asyncconsumer.__file__)).parent
    with zipfile.ZipFile(plain, "w") as made:
        for file in package.rglob("*"):
            if file.is_file():
                made.write(file, file.relative_to(package.parent))
    out, complaints = imported(plain, bare_python(tmp_path / "bare")).communicate()
    assert out.split()[0] == "pure"
    assert complaints.count("PureDecoderWarning") == 1
    assert "none can be imported from a zip" in complaints
    assert "asyncconsumer.spark.ship" in complaints


def test_where_nobody_may_write_a_process_unpacks_for_itself(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp

    def refuse(**where: Any) -> str:
        if where.get("dir") == path.parent:
            raise PermissionError(str(path.parent))
        return str(make(**{"dir": tmp_path, **where}))

    path = tmp_path / "kept" / "ours.zip"
    path.parent.mkdir()
    shutil.copy(archive, path)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    package, dependencies = bootstrap.unpack(path)
    assert (package / "asyncconsumer/records/decoding.py").is_file()
    assert (dependencies / "cramjam/__init__.py").is_file()
    assert list(path.parent.iterdir()) == [path]


def test_what_is_not_installed_cannot_be_shipped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-thing is not installed"):
        packaging.package(tmp_path / "x.zip", also=["no-such-thing"])
    with pytest.raises(ConfigError, match=r"x\.tar must end in \.zip"):
        packaging.package(tmp_path / "x.tar")
    for address in ("s3://bucket/x.zip", "hdfs:x.zip"):
        with pytest.raises(ConfigError, match="begins with the scheme"):
            packaging.package(address)
    assert list(tmp_path.iterdir()) == []


def test_further_packages_come_along(tmp_path: Path) -> None:
    made = packaging.package(tmp_path / "x.zip", also=["fastavro"])
    names = zipfile.ZipFile(made).namelist()
    assert any(name.startswith("dependencies/fastavro/") for name in names)
    assert not any("pyarrow" in name or "testing" in name.split("/")[:3] for name in names)


def test_the_command_makes_it_and_tells_how_to_pass_it(tmp_path: Path) -> None:
    made = tmp_path / "x.zip"
    result = CliRunner().invoke(app, ["spark-package", str(made)])
    assert result.exit_code == 0, result.output
    assert f"for {bootstrap.interpreter()}, compiled decoder" in result.output
    assert f"spark-submit --py-files {made} job.py" in result.output
    assert "package/asyncconsumer/__init__.py" in zipfile.ZipFile(made).namelist()
    failed = CliRunner().invoke(app, ["spark-package", str(tmp_path / "nowhere" / "x.zip")])
    assert isinstance(failed.exception, ConfigError)  # which the command tells in one sentence
    assert "x.zip cannot be written: No such file or directory" in str(failed.exception)
