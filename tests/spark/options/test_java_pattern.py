"""Java's regular expressions for topic names."""

import re

import pytest

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.java_pattern import translate

pytestmark = pytest.mark.fast

NAMES = ["a", "b", "ab", "AB", "Ab", "a.b", "a-b", "a_b", "7", "a7", "orders", "Orders.eu-1"]

PATTERNS: dict[str, list[str]] = {
    "a.b": ["a.b", "a-b", "a_b"],
    r"^\p{Alpha}+$": ["a", "b", "ab", "AB", "Ab", "orders"],
    r"^\p{L}\p{N}$": ["a7"],
    r"^\p{Lu}\P{Lu}+$": ["Ab", "Orders.eu-1"],
    r"^\p{IsAlphabetic}$": ["a", "b"],
    r"^\pL$": ["a", "b"],
    r"\Qa.b\E": ["a.b"],
    r"^(?<x>a)\k<x>?b": ["ab"],
    "^[a-z&&[^b]]$": ["a"],
    "^[a-c[A-C]]{2}$": ["ab", "AB", "Ab"],
    r"^[^\p{Lower}&&[a-z]]+$": ["AB", "7"],
    r"b\z": ["b", "ab", "Ab", "a.b", "a-b", "a_b"],
    "^a(?i)B|^ORD": ["ab", "orders", "Orders.eu-1"],
    "^(a(?i)B)$": ["ab"],
    "^(?i:A)b$": ["ab", "Ab"],
    "(?i)^[^a]$": ["b", "7"],
    r"^\H\V\S$": ["a.b", "a-b", "a_b"],
    r"\x61\u0062": ["ab"],
    r"^[\w&&[^\d]]+$": ["a", "b", "ab", "AB", "Ab", "a_b", "orders"],
    r"^[a\-.]+$": ["a"],
    "^[]a]$": ["a"],
    "(?s)(?u)^ab$": ["ab"],
    r"^(?!a)[a-z]+$": ["b", "orders"],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_translated_pattern_matches_the_same_names_as_in_java(pattern: str) -> None:
    compiled = re.compile(translate(pattern))
    assert [name for name in NAMES if compiled.search(name)] == PATTERNS[pattern]


@pytest.mark.parametrize(
    "pattern",
    [r"\p{Runes}", r"\X", r"\G", r"\b{g}", "(?x) a", "[a", "(a", "a)", "a\\", "[b-a]", r"[\Qa\E]"],
)
def test_patterns_without_an_equivalent_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="subscribePattern"):
        translate(pattern)
