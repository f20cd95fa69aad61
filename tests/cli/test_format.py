"""The `--format` option: the escapes of kcat, and arbitrary bytes."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer import ConfigError
from asyncconsumer.cli.consume.format import Format
from asyncconsumer.records.decoding import Record

pytestmark = pytest.mark.fast

RECORD = Record(
    "orders", 3, 17, 1700000000123, 0, b"k\x00y", b"va\nlue", [("a", b"1"), ("b", None)]
)
NOTHING = Record("orders", 3, 18)
EMPTY = Record("orders", 3, 19, key=b"", value=b"")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%s\n", b"va\nlue\n"),
        (r"%t %p %o %k %s\n", b"orders 3 17 k\x00y va\nlue\n"),
        ("%K %S %T", b"3 6 1700000000123"),
        ("%R%s", b"\x00\x00\x00\x06va\nlue"),
        ("%h", b"a=1,b=NULL"),
        (r"100%%\t\r\x00\xfF\\n", b"100%\t\r\x00\xff\\n"),
        ("%%s", b"%s"),
        ("ü%k", "ük\x00y".encode()),
        ("the same for all", b"the same for all"),
    ],
)
def test_each_format_code_is_that_of_kcat(text: str, printed: bytes) -> None:
    assert Format(text).render([RECORD]) == printed


def test_null_is_printed_as_nothing_with_the_length_minus_1() -> None:
    assert Format("[%k|%s|%K|%S|%h|%R]").render([NOTHING]) == b"[||-1|-1||\xff\xff\xff\xff]"
    assert Format("[%k|%s|%K|%S]").render([EMPTY]) == b"[||0|0]"


def test_no_records_are_printed_as_nothing() -> None:
    assert Format("x").render([]) == b""


def test_bytes_of_the_command_line_are_unchanged() -> None:
    assert Format(os.fsdecode(b"\xff\xfe%s")).render([EMPTY]) == b"\xff\xfe"


@pytest.mark.parametrize("text", ["%q", "%", "a%", "\\", "%s\\", r"\y", r"\x", r"\x1", r"\xgg", ""])
def test_unknown_codes_and_escapes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"Known (codes|escapes): [%\\]|--format is empty"):
        Format(text)


def test_the_error_quotes_the_unknown_code() -> None:
    with pytest.raises(ConfigError, match=re.escape("--format '%s %q' has the unknown code '%q'")):
        Format("%s %q")
    with pytest.raises(
        ConfigError, match=re.escape(r"has the unknown escape '\y'. Known escapes: \n")
    ):
        Format(r"\y")


blobs = st.none() | st.binary(max_size=20)
records = st.builds(
    Record,
    st.just("t"),
    st.just(0),
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    key=blobs,
    value=blobs,
    headers=st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3),
)


@given(st.lists(records, max_size=5))
def test_any_bytes_can_be_read_back(many: list[Record]) -> None:
    printed = Format("%o %T %K %S %k%s").render(many)
    for record in many:
        offset, timestamp, key_length, value_length, printed = printed.split(b" ", 4)
        assert (int(offset), int(timestamp)) == (record.offset, record.timestamp)
        for length, data in ((int(key_length), record.key), (int(value_length), record.value)):
            assert length == (-1 if data is None else len(data))
            assert printed[: max(0, length)] == (data or b"")
            printed = printed[max(0, length) :]
    assert printed == b""


@given(st.binary(max_size=30).filter(lambda data: data and b"%" not in data and b"\\" not in data))
def test_text_without_codes_is_printed_once_per_record(data: bytes) -> None:
    assert Format(os.fsdecode(data)).render([RECORD, NOTHING]) == data * 2


@given(st.lists(records, max_size=4))
def test_several_records_are_printed_like_single_records_in_order(many: list[Record]) -> None:
    form = Format(r"%t[%p] %h %k=%s\n")
    assert form.render(many) == b"".join(form.render([record]) for record in many)
