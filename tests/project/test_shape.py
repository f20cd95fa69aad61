"""Limits for the size of modules, functions and classes."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.fast

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
MODULES = sorted((ROOT / "asyncconsumer").rglob("*.py"))

MAX_LINES: Final = 500
MAX_FUNCTION_LINES: Final = 50
MAX_ATTRIBUTES: Final = 15

EXEMPT: Final = {
    "ClassicConfig": "a configuration: one field for each property of Kafka's classic consumer",
    "ConnectionConfig": "a configuration: one field for each connection option",
    "MemberConfig": "a configuration: one field for each option of a group member",
    "SecurityConfig": "a configuration: one field for each option of TLS and login",
    "SourceOptions": "a configuration: one field for each option of the Spark source",
}
"""Classes with more attributes, each with the reason."""


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = len((ast.get_docstring(node) or "").splitlines())
    return (node.end_lineno or 0) - node.lineno + 1 - documented


def is_record(node: ast.ClassDef) -> bool:
    """Return whether the class is a dataclass or a named tuple, whose annotations are fields."""
    marks = (*node.decorator_list, *node.bases)
    names = {ast.unparse(mark).partition("(")[0].rpartition(".")[2] for mark in marks}
    return bool(names & {"dataclass", "NamedTuple", "dataclass_transform"})


def own_attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes that methods set on `self`, and the fields of a record."""
    attributes = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    if is_record(node):
        attributes |= {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign)
            and isinstance(each.target, ast.Name)
            and "ClassVar" not in ast.unparse(each.annotation)
        }
    return attributes


def base_names(node: ast.ClassDef) -> list[str]:
    """Return the names of the base classes, without modules and type parameters."""
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def attributes(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Return the attributes of a class and of its base classes in this package."""
    result = own_attributes(node)
    for name in base_names(node):
        base = classes.get(name)
        if base is not None and base is not node:
            result |= attributes(base, classes)
    return result


def violations(
    tree: ast.Module, lines: int, classes: Mapping[str, ast.ClassDef] | None = None
) -> Iterator[str]:
    if lines > MAX_LINES:
        yield f"a module of {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (length := function_lines(node)) > MAX_FUNCTION_LINES:
                yield f"{node.name}() of {length} lines"
        elif isinstance(node, ast.ClassDef) and node.name not in EXEMPT:
            count = len(attributes(node, classes or {}))
            if count > MAX_ATTRIBUTES:
                yield f"class {node.name} with {count} attributes"


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


@cache
def package_classes() -> dict[str, ast.ClassDef]:
    """Return the classes of the package by name. A name has one meaning outside `testing`."""
    nodes = (
        node
        for module in sorted(MODULES, key=lambda path: "testing" not in path.parts)
        for node in ast.walk(parsed(module))
    )
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_functions_and_classes_are_within_limits(module: Path) -> None:
    lines = len(module.read_text(encoding="utf-8").splitlines())
    assert list(violations(parsed(module), lines, package_classes())) == []


def test_every_exempt_class_is_above_the_limit() -> None:
    classes = package_classes()
    fits = {
        name
        for name in EXEMPT
        if name not in classes or len(attributes(classes[name], classes)) <= MAX_ATTRIBUTES
    }
    assert fits == set(), "remove them from EXEMPT"


def test_the_limits_detect_violations() -> None:
    long_function = "def f():\n" + "    x = 1\n" * 60
    methods = "".join(f"        self.a{n} = 1\n" for n in range(16))
    fields = "".join(f"    b{n}: int = 1\n" for n in range(12))
    source = (
        f"{long_function}class C:\n    def f(self, other):\n        other.x = 1\n{methods}"
        f"@dataclass(frozen=True)\nclass D:\n{fields}"
        "class E(D):\n    def f(self):\n        self.b0 = self.c = self.d = self.e = self.f = 1\n"
    )
    tree = ast.parse(source)
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assert list(violations(tree, 501, classes)) == [
        "a module of 501 lines",
        "f() of 61 lines",
        "class C with 16 attributes",
        "class E with 16 attributes",
    ]


def calls_create_task(module: Path) -> bool:
    called = (node.func for node in ast.walk(parsed(module)) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr == "create_task" for func in called)


def test_only_start_task_creates_tasks() -> None:
    callers = {str(path.relative_to(ROOT)) for path in MODULES if calls_create_task(path)}
    assert callers == {
        "asyncconsumer/aio/start_task.py",  # safe with eager task factories
        "asyncconsumer/testing/virtual_time/simloop.py",  # an event loop
    }
