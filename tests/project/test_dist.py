"""Releases: one source of the version, and no wheel without the compiled decoder."""

import tomllib
import zipfile
from pathlib import Path

import pytest

import asyncconsumer
from tools.check_wheels import DistError, check_wheel, source_version

pytestmark = pytest.mark.fast
ROOT = Path(__file__).parents[2]
DECODER = "asyncconsumer/records/_records.cpython-311-x86_64-linux-gnu.so"


def wheel(folder: Path, *names: str) -> Path:
    path = folder / "asyncconsumer-1.2.3-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def test_a_wheel_without_the_compiled_decoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DistError, match="no compiled record decoder"):
        check_wheel(wheel(tmp_path, "asyncconsumer/records/_pure.py"), "1.2.3")
    check_wheel(wheel(tmp_path, DECODER), "1.2.3")


def test_a_wheel_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DistError, match=r"not of version 2\.0\.0"):
        check_wheel(wheel(tmp_path, DECODER), "2.0.0")


def test_the_version_has_one_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    source = project["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert source == "asyncconsumer.__version__"
    assert source_version() == asyncconsumer.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {asyncconsumer.__version__} " in changelog
