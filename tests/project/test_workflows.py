"""The GitHub workflows name targets that exist, and actionlint accepts them."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = shutil.which("actionlint")


def targets(value: Any) -> set[str]:
    """Return the make targets in a workflow: those of `make` and those of matrices."""
    if isinstance(value, dict):
        named = value.get("target", ())
        return (
            {named} if isinstance(named, str) else set(named).union(*map(targets, value.values()))
        )
    if isinstance(value, list):
        return set().union(*map(targets, value))
    return set(re.findall(r"\bmake ([a-z-]+)", value)) if isinstance(value, str) else set()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_make_targets_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    declared = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets(workflow["jobs"]) - declared == set()
    assert workflow["permissions"] == {"contents": "read"}


def test_the_workflows_test_every_python_and_both_decoders() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert {f'python: "3.{minor}"' for minor in range(11, 15)} <= set(
        re.findall(r'python: "3\.\d+"', text)
    )
    assert "decoder: pure" in text
    assert {"test", "test-oldest", "test-newest", "check", "dist", "test-fast"} == targets(
        yaml.safe_load(text)["jobs"]
    )


@pytest.mark.skipif(ACTIONLINT is None, reason="actionlint is not installed")
def test_actionlint_accepts_the_workflows() -> None:
    subprocess.run([str(ACTIONLINT), *WORKFLOWS], check=True, cwd=ROOT)
