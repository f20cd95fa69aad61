"""Byte code beside the sources that Spark's Python processes import from a zip."""

import importlib.util
import marshal
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zipimport
from pathlib import Path

import pyspark
import pytest
from typer.testing import CliRunner

from asyncconsumer import ConfigError
from asyncconsumer.cli.app import app
from asyncconsumer.spark.deploy.precompile import add_byte_code, spark_home

pytestmark = pytest.mark.fast

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
PRINT = "import importlib, sys; print(importlib.import_module(sys.argv[1]).__file__)"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "lib.zip"
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("pack/__init__.py", "")
        new.writestr("pack/one.py", "NUMBER = 1")
        new.writestr("pack/two.py", "NUMBER = 2")
        new.writestr("pack/template.py", "NUMBER = {{ number }} text")
        new.writestr("pack/notes.txt", "not Python")
    return path


def imported_from(path: Path, name: str) -> str:
    command = [sys.executable, "-c", PRINT, name]
    result = subprocess.run(
        command, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def number_of(archive: Path, name: str) -> object:
    importer = zipimport.zipimporter(str(archive))
    importer.invalidate_caches()
    result: dict[str, object] = {}
    exec(importer.get_code(name), result)
    return result["NUMBER"]


def test_modules_are_imported_from_byte_code(archive: Path) -> None:
    assert imported_from(archive, "pack.one") == f"{archive}/pack/one.py"
    mode = archive.stat().st_mode
    assert add_byte_code(archive) == 3  # not the template, which is not valid Python
    assert imported_from(archive, "pack.one") == f"{archive}/pack/one.pyc"
    names = zipfile.ZipFile(archive).namelist()
    assert [name for name in names if "template" in name] == ["pack/template.py"]
    assert "pack/notes.txt" in names
    assert archive.stat().st_mode == mode
    assert list(archive.parent.iterdir()) == [archive]


def test_byte_code_is_added_only_for_new_or_changed_sources(archive: Path) -> None:
    add_byte_code(archive)
    before = archive.read_bytes()
    assert add_byte_code(archive) == 0
    assert archive.read_bytes() == before

    other = archive.with_name("other.zip")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            new.writestr(name, "NUMBER = 7" if name == "pack/one.py" else old.read(name))
    assert number_of(other, "pack/one") == 7  # the changed source is used, without byte code
    assert imported_from(other, "pack.one") == f"{other}/pack/one.py"
    assert imported_from(other, "pack.two") == f"{other}/pack/two.pyc"
    assert add_byte_code(other) == 1
    assert imported_from(other, "pack.one") == f"{other}/pack/one.pyc"
    assert number_of(other, "pack/one") == 7
    assert add_byte_code(other) == 0


def test_byte_code_of_earlier_versions_is_replaced(archive: Path) -> None:
    """Check byte code with a header of earlier versions, which Python does not verify."""
    source = zipfile.ZipFile(archive).read("pack/one.py")
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
    code = marshal.dumps(compile("NUMBER = 666", "one.py", "exec"))
    with zipfile.ZipFile(archive, "a") as new:
        new.writestr("pack/one.pyc", header + importlib.util.source_hash(source) + code)
    assert number_of(archive, "pack/one") == 666
    assert add_byte_code(archive) == 3
    assert number_of(archive, "pack/one") == 1


def test_a_running_process_can_still_read_the_zip(archive: Path) -> None:
    importer = zipimport.zipimporter(str(archive))  # caches the offsets of entries in the file
    add_byte_code(archive)
    assert importer.get_source("pack/two") == "NUMBER = 2"


def test_a_failure_leaves_the_zip_unchanged(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = zipfile.ZipFile.writestr

    def until_full(where: zipfile.ZipFile, name: str, code: bytes) -> None:
        if name.endswith("two.pyc"):
            raise OSError(28, "No space left on device")
        write(where, name, code)

    before = archive.read_bytes()
    monkeypatch.setattr(zipfile.ZipFile, "writestr", until_full)
    with pytest.raises(OSError, match="No space left"):
        add_byte_code(archive)
    assert archive.read_bytes() == before
    assert list(archive.parent.iterdir()) == [archive]


def test_spark_home_is_that_of_the_environment_or_of_pyspark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert spark_home() == Path(pyspark.__file__).parent
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert spark_home() == Path("/opt/spark")


def test_the_command_adds_byte_code_for_the_stream_runner(tmp_path: Path) -> None:
    libraries = tmp_path / "python" / "lib"
    shutil.copytree(Path(pyspark.__file__).parent / "python" / "lib", libraries)
    (py4j,) = libraries.glob("py4j*.zip")
    result = CliRunner().invoke(app, ["spark-compile", str(tmp_path)])
    assert result.exit_code == 0, result.output
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"pyspark.zip: added byte code of Python {python} for 1," in result.output
    file = imported_from(Path(f"{libraries / 'pyspark.zip'}:{py4j}"), RUNNER)
    assert file == f"{libraries / 'pyspark.zip'}/{RUNNER.replace('.', '/')}.pyc"
    again = CliRunner().invoke(app, ["spark-compile", str(tmp_path)])
    assert again.output.count("already has byte code") == 2


def test_the_command_reports_a_wrong_or_read_only_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = CliRunner().invoke(app, ["spark-compile", str(tmp_path)])
    assert isinstance(nowhere.exception, ConfigError)  # printed as one line
    assert f"{tmp_path} is not the folder of a Spark installation" in str(nowhere.exception)

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    zipped = tmp_path / "python" / "lib" / "pyspark.zip"
    zipped.parent.mkdir(parents=True)
    with zipfile.ZipFile(zipped, "w") as new:
        new.writestr("one.py", "")
    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    refused = CliRunner().invoke(app, ["spark-compile", str(tmp_path)])
    assert isinstance(refused.exception, ConfigError)
    assert f"{zipped.resolve()} cannot be written: Permission denied" in str(refused.exception)
