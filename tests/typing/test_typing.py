"""The public types: correct code type-checks, and wrong code does not."""

import re
from pathlib import Path

import pytest
from mypy import api

pytestmark = pytest.mark.fast

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
GOOD, BAD = FOLDER / "good.py", FOLDER / "bad.py"


@pytest.fixture(scope="module")
def errors() -> dict[Path, set[tuple[int, str]]]:
    """Return the errors of each file, as lines and error codes. Mypy caches unchanged files."""
    message, trouble, _ = api.run(
        [
            f"--config-file={ROOT / 'pyproject.toml'}",
            f"--cache-dir={ROOT / '.mypy_cache'}",
            "--show-error-codes",
            "--no-error-summary",
            "--hide-error-context",
            "--no-pretty",
            str(GOOD),
            str(BAD),
        ]
    )
    assert not trouble
    errors: dict[Path, set[tuple[int, str]]] = {GOOD: set(), BAD: set()}
    for line in message.splitlines():
        if (match := re.match(r"(.+?):(\d+): error: .*\[([\w-]+)\]$", line)) is not None:
            errors[ROOT / match[1]].add((int(match[2]), match[3]))
        else:
            assert ": note: " in line, line
    return errors


def test_correct_code_type_checks(errors: dict[Path, set[tuple[int, str]]]) -> None:
    assert errors[GOOD] == set()


def test_each_wrong_line_is_reported(errors: dict[Path, set[tuple[int, str]]]) -> None:
    lines = enumerate(BAD.read_text().splitlines(), 1)
    marked = {
        (number, match[1])
        for number, line in lines
        if (match := re.search(r"# error: ([\w-]+)$", line))
    }
    assert len(marked) > 30
    assert errors[BAD] == marked
