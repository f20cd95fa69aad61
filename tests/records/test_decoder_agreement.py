"""The compiled and the pure decoder return the same result or the same error for any input."""

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records import decoding
from tests.support.record_encoder import Row, batch, control, message, rows, wrapper

pytestmark = pytest.mark.fast

TWINS = [decoding.load(name)[1] for name in decoding.available()]

ENTRIES = [
    batch(rows(5)),
    batch(rows(5, 5), codec=1),
    batch(rows(5, 10), codec=2, attributes=8),
    batch(rows(5, 15), codec=3, attributes=0x10, producer=7),
    batch(rows(5, 20), codec=4),
    batch([Row(25, b"v", None, headers=(("a", b"1"), ("é", None)))]),
    control(26, 7, 0),
    message(27, magic=0),
    message(28),
    wrapper(message(0) + message(1), 30, codec=1),
    wrapper(message(31, magic=0) + message(32, magic=0), 32, codec=3, magic=0),
]


def outcome(decoder: ModuleType, data: bytes, *, check_crc: bool) -> list[object]:
    """Return everything that can be observed of a decoding, in order."""
    records = decoder.Records(
        data,
        topic="t",
        partition=0,
        offset=3,
        aborted=[(7, 0)],
        check_crc=check_crc,
        max_decompressed_bytes=1 << 16,
    )
    seen: list[object] = []
    for _ in range(3):
        try:
            for record in records:
                fields = (record.offset, record.timestamp, record.timestamp_type)
                seen.append(
                    (*fields, record.key, record.value, record.headers, records.next_offset)
                )
            break
        except CorruptRecords as error:
            seen.append((error.offset, error.reason, error.resume))
            if error.resume is not None:
                seen.append(records.skip_corrupt())
    state = records.next_offset, records.incomplete, records.leader_epoch, records.size
    return [*seen, state]


def all_agree(data: bytes) -> None:
    for check_crc in (True, False):
        first, *others = (outcome(twin, data, check_crc=check_crc) for twin in TWINS)
        for other in others:
            assert other == first


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_decoders_agree_on_random_bytes(data: bytes) -> None:
    all_agree(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120), st.integers(0, 4), st.integers(-1, 9), st.integers(0, 0x3F))
def test_decoders_agree_on_batches_of_random_content(
    body: bytes, codec: int, count: int, flags: int
) -> None:
    all_agree(batch(body, codec=codec, count=count, delta=9, attributes=flags & 0x38, producer=7))


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4),
    st.integers(0, 40),
)
def test_decoders_agree_on_mutated_record_sets(
    entries: list[bytes], changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(b"".join(entries))
    for offset, byte in changes:
        data[offset % len(data)] = byte
    all_agree(bytes(data[: len(data) - cut]))


BYTES = st.none() | st.binary(max_size=200)
ROWS = st.lists(
    st.builds(
        Row,
        offset=st.integers(0, 2**30),
        value=BYTES,
        key=BYTES,
        timestamp=st.integers(-(2**61), 2**61),
        headers=st.lists(st.tuples(st.text(max_size=9), BYTES), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=9,
    unique_by=lambda row: row.offset,
).map(lambda results: sorted(results))


@settings(max_examples=200, deadline=None)
@given(ROWS, st.integers(0, 4))
def test_encoded_records_are_decoded_unchanged(written: list[Row], codec: int) -> None:
    for twin in TWINS:
        result = twin.Records(batch(written, codec=codec), topic="t", partition=0)
        back = [Row(f.offset, f.value, f.key, f.timestamp, f.headers) for f in result]
        assert back == written
