"""The shape of the code: modules, functions and classes that fit into a head."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "asyncconsumer").rglob("*.py"))


def too_big(tree: ast.Module, lines: int) -> Iterator[str]:
    if lines > 500:
        yield f"a module of {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = len((ast.get_docstring(node) or "").splitlines())
            if (length := (node.end_lineno or 0) - node.lineno + 1 - documented) > 50:
                yield f"{node.name}() of {length} lines"
        elif isinstance(node, ast.ClassDef):
            stores = (n for n in ast.walk(node) if isinstance(n, ast.Attribute))
            if len(held := {n.attr for n in stores if isinstance(n.ctx, ast.Store)}) > 15:
                yield f"class {node.name} holding {len(held)} things"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_too_big(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    assert list(too_big(ast.parse(text), len(text.splitlines()))) == []


def test_the_limits_can_be_exceeded() -> None:
    long_function = "def f():\n" + "    x = 1\n" * 60
    crowded = "class C:\n    def f(self):\n" + "".join(
        f"        self.a{n} = 1\n" for n in range(16)
    )
    assert list(too_big(ast.parse(long_function + crowded), 501)) == [
        "a module of 501 lines",
        "f() of 61 lines",
        "class C holding 16 things",
    ]


def calls_create_task(module: Path) -> bool:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(one, ast.Attribute) and one.attr == "create_task" for one in called)


def test_only_start_task_creates_tasks() -> None:
    callers = {str(path.relative_to(ROOT)) for path in MODULES if calls_create_task(path)}
    assert callers == {
        "asyncconsumer/aio/start_task.py",  # the only way that is safe with eager task factories
        "asyncconsumer/testing/virtual_time/simloop.py",  # an event loop
    }
