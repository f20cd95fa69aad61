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
    made = tmp_path / "lib.zip"
    with zipfile.ZipFile(made, "w") as new:
        new.writestr("pack/__init__.py", "")
        new.writestr("pack/one.py", "NUMBER = 1")
        new.writestr("pack/two.py", "NUMBER = 2")
        new.writestr("pack/template.py", "NUMBER = {{ number }} here")
        new.writestr("pack/notes.txt", "not Python")
    return made


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


def test_modules_are_imported_from_byte_code_in_the_place_of_sources(archive: Path) -> None:
    assert imported_from(archive, "pack.one") == f"{archive}/pack/one.py"
    mode = archive.stat().st_mode
    assert add_byte_code(archive) == 3  # not the template, which is no Python
    assert imported_from(archive, "pack.one") == f"{archive}/pack/one.pyc"
    names = zipfile.ZipFile(archive).namelist()
    assert [name for name in names if "template" in name] == ["pack/template.py"]
    assert "pack/notes.txt" in names
    assert archive.stat().st_mode == mode
    assert list(archive.parent.iterdir()) == [archive]


def test_what_is_there_is_not_added_again_but_for_another_source(archive: Path) -> None:
    add_byte_code(archive)
    before = archive.read_bytes()
    assert add_byte_code(archive) == 0
    assert archive.read_bytes() == before

    other = archive.with_name("other.zip")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            new.writestr(name, "NUMBER = 7" if name == "pack/one.py" else old.read(name))
    assert number_of(other, "pack/one") == 7  # what was patched runs, without byte code
    assert imported_from(other, "pack.one") == f"{other}/pack/one.py"
    assert imported_from(other, "pack.two") == f"{other}/pack/two.pyc"
    assert add_byte_code(other) == 1
    assert imported_from(other, "pack.one") == f"{other}/pack/one.pyc"
    assert number_of(other, "pack/one") == 7
    assert add_byte_code(other) == 0


def test_byte_code_of_earlier_versions_is_replaced(archive: Path) -> None:
    """The byte code was never compared with the source."""
    source = zipfile.ZipFile(archive).read("pack/one.py")
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
    code = marshal.dumps(compile("NUMBER = 666", "one.py", "exec"))
    with zipfile.ZipFile(archive, "a") as new:
        new.writestr("pack/one.pyc", header + importlib.util.source_hash(source) + code)
    assert number_of(archive, "pack/one") == 666
    assert add_byte_code(archive) == 3
    assert number_of(archive, "pack/one") == 1


def test_a_process_that_runs_from_the_zip_goes_on_reading_it(archive: Path) -> None:
    importer = zipimport.zipimporter(str(archive))  # remembers where in the file everything is
    add_byte_code(archive)
    assert importer.get_source("pack/two") == "NUMBER = 2"


def test_a_zip_that_cannot_be_replaced_stays_as_it_is(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_home_is_that_of_the_environment_or_pysparks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert spark_home() == Path(pyspark.__file__).parent
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert spark_home() == Path("/opt/spark")


def test_the_command_serves_what_starts_a_stream(tmp_path: Path) -> None:
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


def test_the_command_tells_what_is_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = CliRunner().invoke(app, ["spark-compile", str(tmp_path)])
    assert isinstance(nowhere.exception, ConfigError)  # which the program tells in one sentence
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
