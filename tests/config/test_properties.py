"""Java properties files: names, values and lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.config.properties import parse_properties

pytestmark = pytest.mark.fast


def parse(text: str) -> dict[str, str]:
    return {name: value for name, (value, _) in parse_properties(text).items()}


CLASSIC = """\
# Licensed ...
! also a comment
zookeeper.connect=127.0.0.1:2181,\\
                  127.0.0.2:2181
  group.id = billing
fetch.min.bytes : 17
consumer.id\tone

empty=
alone
with\\ blank\\==a\\=b\\u00e4\\n
path=C:\\\\dir\\\\
#not.this=1\\
last = twice
last = counts"""


def test_a_file_is_parsed_like_in_java() -> None:
    expected = {
        "zookeeper.connect": "127.0.0.1:2181,127.0.0.2:2181",
        "group.id": "billing",
        "fetch.min.bytes": "17",
        "consumer.id": "one",
        "empty": "",
        "alone": "",
        "with blank=": "a=bä\n",
        "path": "C:\\dir\\",
        "last": "counts",
    }
    assert parse(CLASSIC) == expected
    assert parse(CLASSIC.replace("\n", "\r\n")) == expected
    assert parse("a=1\\") == {"a": "1"}
    assert parse("a=1,\\\n#2") == {"a": "1,#2"}  # a continuation line is no comment


@given(st.text())
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    parse(text)


PLAIN = st.from_regex(r"[a-z.]{1,10}", fullmatch=True)


@given(st.dictionaries(PLAIN, PLAIN))
def test_plain_names_and_values_are_parsed_unchanged(properties: dict[str, str]) -> None:
    written = "".join(f"{name}={value}\n" for name, value in properties.items())
    assert parse(written) == properties


def test_a_value_has_the_line_of_its_name() -> None:
    lines = {name: line for name, (_, line) in parse_properties(CLASSIC).items()}
    assert lines["zookeeper.connect"] == 3
    assert lines["group.id"] == 5
    assert lines["last"] == 15


def test_the_repr_of_a_property_has_no_value() -> None:
    assert "hunter2" not in repr(parse_properties("password=hunter2"))
