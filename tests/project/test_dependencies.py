"""Declared dependencies, which include each imported package."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import asyncconsumer
from tools import extras

pytestmark = pytest.mark.fast

PACKAGE = Path(asyncconsumer.__file__).parent
PYPROJECT = PACKAGE.parent / "pyproject.toml"


def declared() -> set[str]:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    shipped = [
        requirement for name, each in extras.items() if name != "dev" for requirement in each
    ]
    names = (
        re.match(r"[\w.-]+", requirement) for requirement in [*project["dependencies"], *shipped]
    )
    return {normal(name[0]) for name in names if name is not None}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported() -> Iterator[tuple[str, Path]]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            yield from ((name.partition(".")[0], path.relative_to(PACKAGE)) for name in names)


def test_every_import_is_declared() -> None:
    known = {*sys.stdlib_module_names, "_typeshed", "asyncconsumer"}
    distributions = metadata.packages_distributions()
    missing = {
        f"{name} in {path}"
        for name, path in imported()
        if name not in known
        and not {normal(name) for name in distributions.get(name, [name])} & declared()
    }
    assert missing == set()


def test_each_extra_has_a_check_of_its_own() -> None:
    """Check that `make extras` installs each extra into an empty environment."""
    assert set(extras.USES) == extras.shipped_extras()
