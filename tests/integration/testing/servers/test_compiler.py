"""Java programs that are compiled once."""

import subprocess
from pathlib import Path

import pytest

from asyncconsumer.testing.servers import CompileFailed, java, maven
from asyncconsumer.testing.servers.compiler import compiled

HELLO = 'public class Hello { public static void main(String[] a) { System.out.print("%s"); } }'


def run(classes: Path) -> str:
    command = java.java_command(java.find_java(), [classes], "Hello", heap="32m")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def test_a_program_is_compiled_once_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "Hello.java"
    source.write_text(HELLO % "good day")
    first = await compiled(source, java.find_java(), [])
    assert first.is_relative_to(maven.cache_folder())
    assert run(first) == "good day"

    with monkeypatch.context() as without_compiler:
        without_compiler.setattr(subprocess, "run", None)
        assert await compiled(source, java.find_java(), []) == first

    source.write_text(HELLO % "good night")
    second = await compiled(source, java.find_java(), [])
    assert run(second) == "good night"
    for classes in (first, second):
        (classes / "Hello.class").unlink()
        classes.rmdir()


async def test_a_compile_error_is_reported_with_its_line(tmp_path: Path) -> None:
    source = tmp_path / "Broken.java"
    source.write_text("public class Broken { int number = true; }")
    with pytest.raises(CompileFailed, match=r"(?s)Broken\.java does not compile.*number = true"):
        await compiled(source, java.find_java(), [])
    assert not list((maven.cache_folder() / "classes").glob("*Broken*"))
