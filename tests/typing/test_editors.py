"""The second type checker, and the options that editors complete in `Consumer(`."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, get_type_hints

import pytest

from asyncconsumer import ConsumerOptions
from tests.support.language_server import complete

pytestmark = pytest.mark.fast

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
BIN: Final = Path(sys.executable).parent
CALL: Final = "from asyncconsumer import Consumer\nConsumer()\n"
JEDI: Final = """
import jedi, sys
text, root = sys.argv[1:]
script = jedi.Script(text, path=f"{root}/completed.py", project=jedi.Project(root))
print(*(completion.name for completion in script.complete(2, 9)))
"""
OPTIONS: Final = set(get_type_hints(ConsumerOptions))


def marked_options() -> set[int]:
    """Return the numbers of the wrong lines in the function `options` of bad.py."""
    lines = (FOLDER / "bad.py").read_text().splitlines()
    start = lines.index("def options() -> None:")
    end = next(number for number in range(start + 1, len(lines)) if not lines[number])
    return {number + 1 for number in range(start, end) if re.search("# error:", lines[number])}


def pyright(file: Path) -> set[int]:
    """Return the numbers of the lines in which pyright reports an error."""
    command = [f"{BIN}/basedpyright", "--outputjson", "--pythonpath", sys.executable, str(file)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    report = json.loads(result.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    return {
        diagnostic["range"]["start"]["line"] + 1
        for diagnostic in report["generalDiagnostics"]
        if diagnostic["severity"] == "error"
    }


def test_pyright_reports_each_wrong_option_that_mypy_reports() -> None:
    wrong = marked_options()
    assert len(wrong) >= 10
    assert wrong - pyright(FOLDER / "bad.py") == set()


def test_jedi_completes_each_option_of_a_consumer() -> None:
    # in a process of its own, because jedi does not end the processes that it starts
    command = [sys.executable, "-c", JEDI, CALL, str(ROOT)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = {name.removesuffix("=") for name in output.split()}
    assert len(OPTIONS) > 50
    assert OPTIONS - names == set()


def test_pyright_completes_each_option_of_a_consumer() -> None:
    names = complete([str(BIN / "basedpyright-langserver"), "--stdio"], ROOT, CALL, 1, 9)
    assert OPTIONS - names == set()
