"""The build of the compiled decoder, with and without a compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from asyncconsumer.records import decoding

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.fast


def built(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "setup.py", "build", "--build-base", str(folder / "base")]
    return subprocess.run(
        [*command, "--build-lib", str(folder / "lib")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )


def python(folder: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            f"import sys; sys.path.insert(0, {str(folder / 'lib')!r})\n{program}",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_a_build_without_a_compiler_warns_and_uses_the_pure_decoder(tmp_path: Path) -> None:
    build = built(tmp_path, CC="no-such-compiler")
    assert "was NOT compiled" in build.stdout
    assert "no-such-compiler" in build.stdout

    program = (
        "import asyncconsumer.records.decoding as decoding; print(decoding.__file__, decoding.name)"
    )
    result = python(tmp_path, program)
    assert result.stdout.split() == [
        str(tmp_path / "lib/asyncconsumer/records/decoding.py"),
        "pure",
    ]
    assert "PureDecoderWarning: the compiled record decoder is missing" in result.stderr
    assert "no-such-compiler" in result.stderr

    accepted = python(tmp_path, program, ASYNCCONSUMER_DECODER="pure")
    assert accepted.stderr == ""

    required = python(tmp_path, program, ASYNCCONSUMER_DECODER="compiled")
    assert required.returncode != 0
    assert "ModuleNotFoundError" in required.stderr


def test_a_build_with_a_compiler_has_the_compiled_decoder(tmp_path: Path) -> None:
    built(tmp_path)
    result = python(
        tmp_path, "import asyncconsumer.records.decoding as decoding; print(decoding.name)"
    )
    assert (result.stdout, result.stderr) == ("compiled\n", "")


def test_a_decoder_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        ImportError, match="ASYNCCONSUMER_DECODER=fast: no such decoder; use one of"
    ):
        decoding.load("fast")
