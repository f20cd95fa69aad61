"""Interpreters that the compiled decoder does not support, and the errors of their refusal."""

import importlib
import os
import subprocess
import sys
import textwrap

import pytest

from asyncconsumer.records import decoding

pytestmark = pytest.mark.fast

DECODER_VARIABLE = "ASYNCCONSUMER_DECODER"  # selects one of the two decoders for a run of all tests

STARTER = """
import sys
try:
    import _interpreters as interpreters  # 3.13 and later
    number = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    number = interpreters.create(isolated=False)
failed = interpreters.run_string(number, sys.argv[1])
interpreters.destroy(number)
sys.exit(str(failed) if failed else 0)
"""
CORRUPT = """
import warnings
warnings.simplefilter("ignore")
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records import decoding
try:
    list(decoding.Records(bytes(100), topic="t", partition=0))
except CorruptRecords:
    print(decoding.name, "caught", flush=True)
"""
REFUSED = """
try:
    import asyncconsumer.records._records
except ImportError as error:
    print(error, flush=True)
"""
IMPORTING = """
import asyncconsumer.records.decoding
"""


def run(first: str, inside: str) -> subprocess.CompletedProcess[str]:
    """Run one script, then another in a subinterpreter of the same process, as mod_wsgi does."""
    environment = {name: os.environ[name] for name in os.environ if name != DECODER_VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(first) + STARTER, inside],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("first", ["", IMPORTING], ids=["first", "after the main interpreter"])
def test_a_subinterpreter_is_refused_the_compiled_decoder(first: str) -> None:
    done = run(first, REFUSED)
    assert done.returncode == 0, done.stderr
    assert "this is a subinterpreter" in done.stdout
    assert "WSGIApplicationGroup %{GLOBAL}" in done.stdout


def test_errors_are_caught_in_a_first_subinterpreter() -> None:
    done = run("", CORRUPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "pure caught\n"


def test_a_second_interpreter_is_refused_with_the_reason() -> None:
    """The codecs refuse a second interpreter, so the pure decoder does not work there."""
    done = run(IMPORTING, IMPORTING)
    assert done.returncode != 0
    assert "the compiled record decoder works only in the main interpreter" in done.stderr


def test_the_module_can_be_imported_again_with_fresh_errors() -> None:
    script = IMPORTING + textwrap.dedent("""
        import sys
        for name in [name for name in sys.modules if name.startswith("asyncconsumer")]:
            del sys.modules[name]
    """)
    done = subprocess.run(
        [sys.executable, "-c", script + CORRUPT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "compiled caught\n"


def test_a_refusing_decoder_is_not_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def refuse(name: str) -> object:
        if name.endswith("._records"):
            raise ImportError("no lock")
        return real(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.warns(decoding.PureDecoderWarning, match=r"cannot be loaded \(no lock\)") as warned:
        assert decoding.load(None)[0] == "pure"
    assert "C compiler" not in str(warned[0].message)
