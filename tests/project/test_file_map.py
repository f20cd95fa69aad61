"""The file map lists every module with its current description."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.fast

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("file_map", ROOT / "docs" / "file_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed_modules(page: str) -> set[str]:
    """Return the paths of the modules that the page lists, and of the packages."""
    paths = set()
    for section in page.split("\n## ")[1:]:
        folder = section.partition("\n")[0]
        paths |= {
            f"{folder}{name}" for name in re.findall(r"^\| `(.*?\.py)` \|", section, re.MULTILINE)
        }
        paths.add(f"{folder}__init__.py")
    return paths


def test_every_module_is_listed_and_exists() -> None:
    page = (ROOT / "docs" / "file-map.md").read_text(encoding="utf-8")
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "asyncconsumer").rglob("*.py")}
    assert listed_modules(page) == modules, "run `python docs/file_map.py`"


def test_descriptions_are_those_of_the_modules(generator: ModuleType) -> None:
    page = (ROOT / "docs" / "file-map.md").read_text(encoding="utf-8")
    assert page == generator.file_map(), "run `python docs/file_map.py`"


def test_design_has_every_package() -> None:
    design = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    packages = {
        path.name.removesuffix(".py")
        for path in (ROOT / "asyncconsumer").iterdir()
        if (path / "__init__.py").exists() or (path.suffix == ".py" and path.stem != "__init__")
    }
    assert packages == set(re.findall(r"^\| \[`(\w+)`\]\(docs/file-map.md#", design, re.MULTILINE))


def test_paths_in_design_exist() -> None:
    design = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", design))
    folders = (ROOT, ROOT / "asyncconsumer")
    missing = {path for path in paths if not any((folder / path).exists() for folder in folders)}
    assert missing == set()
