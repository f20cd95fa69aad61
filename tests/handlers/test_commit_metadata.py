"""Finished records beyond a commit, as commit metadata: complete or cut, never wrong."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.handlers.commit_metadata import LONGEST, decode, encode, merged

pytestmark = pytest.mark.fast

OFFSETS = st.integers(0, 2**62)
LENGTHS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=60)


def ranges_of(base: int, lengths: list[tuple[int, int]]) -> list[tuple[int, int]]:
    results, offset = [], base
    for gap, run in lengths:
        results.append((offset + gap, offset + gap + run))
        offset += gap + run
    return results


@given(OFFSETS, LENGTHS)
def test_what_fits_comes_back_whole(base: int, lengths: list[tuple[int, int]]) -> None:
    ranges = ranges_of(base, lengths)
    text = encode(base, ranges)
    assert len(text) <= LONGEST
    assert list(decode(base, text)) == ranges


@given(OFFSETS, st.integers(30, 400), LENGTHS)
def test_what_does_not_fit_is_left_out_from_the_end(
    base: int, limit: int, lengths: list[tuple[int, int]]
) -> None:
    ranges = ranges_of(base, lengths)
    text = encode(base, ranges, limit)
    assert len(text) <= limit
    back = list(decode(base, text))
    assert back == ranges[: len(back)]


def test_every_other_one_of_very_many_fills_the_limit_and_no_more() -> None:
    ranges = [(n, n + 1) for n in range(1, 100_000, 2)]
    text = encode(0, ranges)
    assert len(text) <= LONGEST
    assert len(decode(0, text)) >= 1_000


def test_one_long_run_is_short() -> None:
    assert len(encode(5, [(6, 10**9)])) < 50


@pytest.mark.parametrize(
    "text",
    [
        "",
        "somebody else's",
        "asyncconsumer:1:",
        "asyncconsumer:1:!!!!",
        "asyncconsumer:2:AAAA",
        "asyncconsumer:1:" + base64.b64encode(b"\x02no deflate").decode(),
        "asyncconsumer:1:"
        + base64.b64encode(b"\x02" + zlib.compress(b"\x00" + b"\x01" * 10**6)).decode(),
        "asyncconsumer:1:" + base64.b64encode(b"\x00\x00\x01\x00").decode(),  # an empty range
        "asyncconsumer:1:" + base64.b64encode(b"\x00\x00" + b"\xff" * 20).decode(),
    ],
)
def test_what_is_foreign_or_damaged_says_nothing(text: str) -> None:
    assert list(decode(0, text)) == []


def test_what_belongs_to_another_offset_says_nothing() -> None:
    text = encode(100, [(103, 105)])
    assert list(decode(100, text)) == [(103, 105)]
    assert list(decode(90, text)) == []  # somebody set the group back, and kept the text


@given(st.text(max_size=40), OFFSETS)
def test_no_text_at_all_raises(text: str, base: int) -> None:
    decode(base, f"asyncconsumer:1:{text}")


@given(st.binary(max_size=40), st.integers(0, 3))
def test_no_bytes_at_all_raise(data: bytes, kind: int) -> None:
    text = base64.b64encode(bytes((kind,)) + data).decode()
    for start, stop in decode(0, f"asyncconsumer:1:{text}"):
        assert 0 <= start < stop


def test_ranges_that_touch_are_one() -> None:
    assert merged([(1, 3), (3, 4), (6, 6), (8, 9), (8, 12)]) == [(1, 4), (8, 12)]
