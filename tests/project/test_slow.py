"""The list of slow tests names tests that there are."""

from pathlib import Path

import pytest

from tests.conftest import SLOW

pytestmark = pytest.mark.fast
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_slow_test_exists(name: str) -> None:
    file, _, test = name.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"def {test}(" in text


def test_slow_tests_are_left_out(request: pytest.FixtureRequest) -> None:
    marked = {
        item.nodeid.partition("[")[0]
        for item in request.session.items
        if item.get_closest_marker("slow")
    }
    existing = {item.nodeid.partition("[")[0] for item in request.session.items}
    assert marked == existing & SLOW
    assert "fast and not slow" in (ROOT / "Makefile").read_text(encoding="utf-8")
