"""Names: one meaning for each class name, predicates that answer, and no retired word."""

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import asyncconsumer

pytestmark = pytest.mark.fast

ROOT = Path(asyncconsumer.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

RETIRED = frozenset(
    {
        "accel", "companions_of", "deserializer_of", "fare_well", "give_way", "heeded_by",
        "homeless", "is_worker", "keep_back", "last_sign", "learn_end", "learn_seeds",
        "look_again", "max_blocked_ms", "max_inflated_bytes", "nobody_knows",
        "polls_for_nobody", "reluctance", "sign_of_life", "still_has", "that_tell_sizes",
        "those_there", "told_by", "told_of", "truth_of", "waits_for_share", "whole_of", "wish_of",
    }
)  # fmt: skip
"""Identifiers of an older vocabulary. The glossary in DESIGN.md has the terms in their place."""


def classes(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield node.name


def silent_predicates(source: str) -> Iterator[str]:
    """Functions that are named as questions and give no answer."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            asks = node.name.lstrip("_").startswith(("is_", "has_"))
            returns = node.returns
            if asks and isinstance(returns, ast.Constant) and returns.value is None:
                yield node.name


def identifiers(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.string


def test_no_class_name_is_defined_twice() -> None:
    modules = defaultdict(list)
    for path in MODULES:
        if not path.is_relative_to(ROOT / "testing"):
            for name in classes(path.read_text(encoding="utf-8")):
                modules[name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in modules.items() if len(places) > 1} == {}


def test_predicates_return_a_value() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in silent_predicates(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_no_retired_identifier_is_used() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in RETIRED.intersection(identifiers(path.read_text(encoding="utf-8")))
    }
    assert found == set()


def test_what_is_wrong_is_found() -> None:
    source = "class A: ...\nclass A: ...\ndef is_done() -> None:\n    give_way()\n"
    assert list(classes(source)) == ["A", "A"]
    assert list(silent_predicates(source)) == ["is_done"]
    assert RETIRED.intersection(identifiers(source)) == {"give_way"}
