"""The pairs of examples in docs/migrating-from-faststream.md.

test_readme.py runs the second one of each pair.
"""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

PAGE = Path(__file__).parents[2] / "docs" / "migrating-from-faststream.md"
PAIRS = list(
    zip(
        re.findall(r"``` python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL),
        re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL),
        strict=True,
    )
)


def lines(block: str) -> int:
    """Return the number of lines with code."""
    return sum(bool(line.strip()) for line in block.splitlines())


def test_the_page_has_pairs() -> None:
    assert len(PAIRS) == 3


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_example_with_this_package_is_not_longer(first: str, second: str) -> None:
    compile(first, "FastStream", "exec")
    assert "from faststream" in first
    assert "from asyncconsumer" in second
    assert lines(second) <= lines(first)
