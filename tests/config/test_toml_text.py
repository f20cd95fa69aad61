"""Settings in TOML: names, values and lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer import ConfigError
from asyncconsumer.config.toml_text import parse_toml

pytestmark = pytest.mark.fast

DOCUMENT = '''\
# a comment with a = 1
title = "a service"
[asyncconsumer]
bootstrap.servers = [
  "a:9092",  # the first
  "b:9092",
]

"group.id" = "g"
ssl_cafile = """
group_id = "text"
[other]
"""
ssl_keyfile = \'\'\'
a = 5\'\'\'
[asyncconsumer.fetch]
min = { bytes = 5 }
[other.table]
group_id = "not this"
[[list]]
group_id = "not this"
'''


def test_names_values_and_lines_are_parsed() -> None:
    expected = {
        "bootstrap.servers": (["a:9092", "b:9092"], 4),
        "group.id": ("g", 9),
        "ssl_cafile": ('group_id = "text"\n[other]\n', 10),
        "ssl_keyfile": ("a = 5", 14),
        "fetch.min.bytes": (5, 17),
    }
    assert parse_toml("f", DOCUMENT) == expected
    assert parse_toml("f", DOCUMENT.replace("\n", "\r\n")) == expected


def test_a_document_without_the_table_is_parsed_completely() -> None:
    assert parse_toml("f", "\na = 1\n[b]\nc = true") == {"a": (1, 2), "b.c": (True, 4)}
    assert parse_toml("f", "") == {}


@pytest.mark.parametrize(
    "text", ["password = 'hunter2", "password = hunter2", "hunter2", "a=1\na=2"]
)
def test_an_invalid_document_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f\.toml: the file is not valid TOML") as caught:
        parse_toml("f.toml", text)
    assert "hunter2" not in str(caught.value)


@given(st.lists(st.text(alphabet="\n'\"[]={}#a"), max_size=5))
def test_every_value_has_the_line_of_its_name(values: list[str]) -> None:
    escaped = [value.replace('"', '\\"') for value in values]
    document, lines = "", {}
    for number, value in enumerate(escaped):
        lines[f"k{number}"] = document.count("\n") + 1
        document += f'k{number} = """{value}"""\n'
    assert {name: line for name, (_, line) in parse_toml("f", document).items()} == lines
