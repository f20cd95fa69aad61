"""The archive for executors, on Pythons without other packages."""

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
    return packaging.package(tmp_path_factory.mktemp("made") / "shipped.zip")


def shared_folder(archive: Path) -> Path:
    return archive.with_name(f"asyncconsumer-{hashlib.sha256(archive.read_bytes()).hexdigest()}")


def imported(archive: Path, python: str | Path, *flags: str) -> subprocess.Popen[str]:
    command = [str(python), *flags, "-c", PROGRAM, str(archive)]
    pipe, folder = subprocess.PIPE, archive.parent
    return subprocess.Popen(command, text=True, cwd=folder, stdout=pipe, stderr=pipe)


def test_a_python_without_packages_imports_all_dependencies(archive: Path) -> None:
    programs = [imported(archive, sys.executable, "-I", "-S") for _ in range(3)]
    outputs = [program.communicate() for program in programs]  # they unpack concurrently
    root = shared_folder(archive)
    expected = [
        "compiled",
        str(root / "package/asyncconsumer/records/decoding.py"),
        str(root / "dependencies/aiokafka/__init__.py"),
        str(root / "dependencies/cramjam/__init__.py"),
    ]
    assert [out.split() for out, _ in outputs] == [expected] * 3, outputs
    assert {errors for _, errors in outputs} == {""}
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, root.name}


def test_an_archive_of_another_python_warns_and_uses_the_pure_decoder(
    archive: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(archive) as archived, zipfile.ZipFile(other, "w") as changed:
        for name in archived.namelist():
            content = archived.read(name)
            if name == bootstrap.MADE_BY:
                content = b"cpython-399-vax"
            changed.writestr(name.replace(bootstrap.interpreter(), "cpython-399-vax"), content)
    out, errors = imported(other, bare_python(tmp_path / "bare")).communicate()
    name, _, kafka, codecs = out.split()
    assert name == "pure"
    assert "PureDecoderWarning" in errors
    assert "is for cpython-399-vax, and this Python is cpython-3" in errors
    assert "/bare/" in kafka  # compiled for that machine
    assert "/bare/" in codecs


def test_a_plain_zip_of_the_package_warns_and_uses_the_pure_decoder(tmp_path: Path) -> None:
    plain = tmp_path / "plain.zip"
    package = Path(str(asyncconsumer.__file__)).parent
    with zipfile.ZipFile(plain, "w") as zipped:
        for file in package.rglob("*"):
            if file.is_file():
                zipped.write(file, file.relative_to(package.parent))
    out, errors = imported(plain, bare_python(tmp_path / "bare")).communicate()
    assert out.split()[0] == "pure"
    assert errors.count("PureDecoderWarning") == 1
    assert "none can be imported from a zip" in errors
    assert "asyncconsumer.spark.ship" in errors


def test_a_process_unpacks_elsewhere_if_the_folder_is_read_only(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp

    def refuse(**where: Any) -> str:
        if where.get("dir") == path.parent:
            raise PermissionError(str(path.parent))
        return str(make(**{"dir": tmp_path, **where}))

    path = tmp_path / "kept" / "shipped.zip"
    path.parent.mkdir()
    shutil.copy(archive, path)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    package, dependencies = bootstrap.unpack(path)
    assert (package / "asyncconsumer/records/decoding.py").is_file()
    assert (dependencies / "cramjam/__init__.py").is_file()
    assert list(path.parent.iterdir()) == [path]


def test_wrong_packages_and_file_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-thing is not installed"):
        packaging.package(tmp_path / "x.zip", also=["no-such-thing"])
    with pytest.raises(ConfigError, match=r"x\.tar must end in \.zip"):
        packaging.package(tmp_path / "x.tar")
    for address in ("s3://bucket/x.zip", "hdfs:x.zip"):
        with pytest.raises(ConfigError, match="begins with the scheme"):
            packaging.package(address)
    assert list(tmp_path.iterdir()) == []


def test_further_packages_can_be_added(tmp_path: Path) -> None:
    made = packaging.package(tmp_path / "x.zip", also=["fastavro"])
    names = zipfile.ZipFile(made).namelist()
    assert any(name.startswith("dependencies/fastavro/") for name in names)
    assert not any("pyarrow" in name or "testing" in name.split("/")[:3] for name in names)


def test_the_command_writes_an_archive_and_prints_how_to_use_it(tmp_path: Path) -> None:
    made = tmp_path / "x.zip"
    result = CliRunner().invoke(app, ["spark-package", str(made)])
    assert result.exit_code == 0, result.output
    assert f"for {bootstrap.interpreter()}, compiled decoder" in result.output
    assert f"spark-submit --py-files {made} job.py" in result.output
    assert "package/asyncconsumer/__init__.py" in zipfile.ZipFile(made).namelist()
    failed = CliRunner().invoke(app, ["spark-package", str(tmp_path / "nowhere" / "x.zip")])
    assert isinstance(failed.exception, ConfigError)  # printed as one line
    assert "x.zip cannot be written: No such file or directory" in str(failed.exception)
