"""Finished records after a committed offset, as commit metadata: complete or cut, never wrong."""

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
def test_ranges_within_the_limit_are_decoded_completely(
    base: int, lengths: list[tuple[int, int]]
) -> None:
    ranges = ranges_of(base, lengths)
    text = encode(base, ranges)
    assert len(text) <= LONGEST
    assert list(decode(base, text)) == ranges


@given(OFFSETS, st.integers(30, 400), LENGTHS)
def test_ranges_beyond_the_limit_are_omitted_from_the_end(
    base: int, limit: int, lengths: list[tuple[int, int]]
) -> None:
    ranges = ranges_of(base, lengths)
    text = encode(base, ranges, limit)
    assert len(text) <= limit
    back = list(decode(base, text))
    assert back == ranges[: len(back)]


def test_many_small_ranges_stay_within_the_limit() -> None:
    ranges = [(n, n + 1) for n in range(1, 100_000, 2)]
    text = encode(0, ranges)
    assert len(text) <= LONGEST
    assert len(decode(0, text)) >= 1_000


def test_a_long_range_has_a_short_encoding() -> None:
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
def test_foreign_or_corrupt_metadata_decodes_to_no_ranges(text: str) -> None:
    assert list(decode(0, text)) == []


def test_metadata_of_another_offset_decodes_to_no_ranges() -> None:
    text = encode(100, [(103, 105)])
    assert list(decode(100, text)) == [(103, 105)]
    assert (
        list(decode(90, text)) == []
    )  # the group was reset to an earlier offset with the same metadata


@given(st.text(max_size=40), OFFSETS)
def test_any_text_decodes_without_an_error(text: str, base: int) -> None:
    decode(base, f"asyncconsumer:1:{text}")


@given(st.binary(max_size=40), st.integers(0, 3))
def test_any_bytes_decode_to_valid_ranges(data: bytes, kind: int) -> None:
    text = base64.b64encode(bytes((kind,)) + data).decode()
    for start, stop in decode(0, f"asyncconsumer:1:{text}"):
        assert 0 <= start < stop


def test_adjacent_ranges_are_merged() -> None:
    assert merged([(1, 3), (3, 4), (6, 6), (8, 9), (8, 12)]) == [(1, 4), (8, 12)]
